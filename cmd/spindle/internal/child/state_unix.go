//go:build unix

package child

import (
	"errors"
	"os"
	"syscall"
)

// await waits until the program exits, and records when it is stopped or continued.
func (c *Child) await() {
	defer func() { _ = c.cmd.Process.Release() }()
	for exited := false; !exited; {
		status, _, err := c.wait(0)
		exited = c.note(status, err)
	}
}

// wait returns what the kernel reports about the program. With the option WNOHANG, there may be no news.
func (c *Child) wait(options int) (status syscall.WaitStatus, news bool, err error) {
	for {
		pid, err := syscall.Wait4(c.Pid(), &status, options|syscall.WUNTRACED|syscall.WCONTINUED, nil)
		if !errors.Is(err, syscall.EINTR) {
			return status, pid != 0, err
		}
	}
}

// note records what wait has returned, and reports whether the program has exited. Before it lets go of the lock, it
// reads all further reports. If Continue has ended a stop in the meantime, one of them says so.
func (c *Child) note(status syscall.WaitStatus, err error) (exited bool) {
	c.state.Lock()
	defer c.state.Unlock()
	for news := true; news && err == nil; status, news, err = c.wait(syscall.WNOHANG) {
		stopped, continued := stopOf(status)
		if stopped == nil && !continued {
			c.code = exitCode(status)
			return true
		}
		c.state.stopped = stopped
	}
	if err != nil { // the program is no longer this process's child
		c.code = CannotRun
		return true
	}
	select {
	case c.changed <- struct{}{}: // only the latest state matters
	default:
	}
	return false
}

// stopOf returns the signal that stopped the program, or whether the program was continued. The methods of WaitStatus
// don't know this on macOS: they take SIGSTOP for the report of a continued program, which is SIGCONT there.
func stopOf(status syscall.WaitStatus) (stopped os.Signal, continued bool) {
	const isStopped, isContinued = 0x7f, 0xffff // of the low byte, and of the whole on Linux
	s := syscall.Signal(status >> 8 & 0xff)
	switch {
	case status == isContinued, status&0xff == isStopped && s == syscall.SIGCONT:
		return nil, true
	case status&0xff == isStopped:
		return s, false
	}
	return nil, false
}

// Continue continues a stopped group. Afterwards, Stopped returns nil until the program is stopped again.
func (c *Child) Continue() {
	c.state.Lock()
	defer c.state.Unlock()
	c.state.stopped = nil
	signalGroup(c.Pid(), syscall.SIGCONT)
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
