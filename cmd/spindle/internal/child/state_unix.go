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
		exited = c.note(awaitReport(c.Pid()))
	}
}

// A report is what the kernel says about a process.
type report struct {
	status syscall.WaitStatus
	taken  bool // the kernel will not return it again; if false, there may be no report
	err    error
}

// wait takes a report about a process from the kernel. With the option WNOHANG, there may be no report.
func wait(process, options int) (r report) {
	for {
		pid, err := syscall.Wait4(process, &r.status, options|syscall.WUNTRACED|syscall.WCONTINUED, nil)
		if !errors.Is(err, syscall.EINTR) {
			r.taken, r.err = pid != 0, err
			return r
		}
	}
}

// note records everything that the kernel reports, and returns whether the program has exited. It holds the mutex, so
// Continue can't run at the same time. If Continue has just ended a stop, either the kernel has dropped the report of
// the stop, or it also reports that the program was continued.
func (c *Child) note(r report) (exited bool) {
	c.state.Lock()
	defer c.state.Unlock()
	if !r.taken && r.err == nil {
		r = wait(c.Pid(), syscall.WNOHANG)
	}
	for ; r.taken && r.err == nil; r = wait(c.Pid(), syscall.WNOHANG) {
		stopped, continued := stopOf(r.status)
		if stopped == nil && !continued {
			return c.exit(exitCode(r.status))
		}
		c.state.stopped = stopped
	}
	if r.err != nil { // the program is no longer this process's child
		return c.exit(CannotRun)
	}
	select {
	case c.changed <- struct{}{}: // only the latest state matters
	default:
	}
	return false
}

// exit records that the program has exited. Unless Leaving is set, it kills the processes that the program left behind
// in its group. It does so immediately and only once, because the group's id may be reused once the group is empty.
func (c *Child) exit(code int) (exited bool) {
	if !c.Leaving {
		signalGroup(c.pid, syscall.SIGKILL)
	}
	c.code, c.state.exited = code, true
	return true
}

// stopOf returns the signal that stopped the program, or reports that the program was continued. It does not use the
// methods of WaitStatus, which are wrong on macOS: they expect SIGSTOP in the report of a continued program, but the
// kernel reports SIGCONT.
func stopOf(status syscall.WaitStatus) (stopped os.Signal, continued bool) {
	const isStopped, isContinued = 0x7f, 0xffff // the low byte; on Linux, the whole status
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
	c.signal(syscall.SIGCONT)
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
