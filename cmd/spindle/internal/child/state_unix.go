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
	for {
		continued := c.state.timesContinued()
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.Pid(), &status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // the program is no longer this process's child
			c.code = CannotRun
			return
		case status.Stopped():
			c.note(status.StopSignal(), continued)
		case status.Continued():
			c.note(nil, continued)
		default:
			c.code = exitCode(status)
			return
		}
	}
}

// note records that a signal has stopped the program, or with nil, that the program was continued. If Continue has been
// called since the count continued was taken, the stop may be one that Continue has ended. Then note only continues the
// program again, because a program that still waits for the terminal will be stopped again.
func (c *Child) note(stopped os.Signal, continued int) {
	c.state.Lock()
	defer c.state.Unlock()
	if stopped != nil && c.state.continued != continued {
		c.goOn()
		return
	}
	c.state.stopped = stopped
	select {
	case c.changed <- struct{}{}: // only the latest state matters
	default:
	}
}

// Continue continues a stopped group. Afterwards, Stopped returns nil until the program is stopped again.
func (c *Child) Continue() {
	c.state.Lock()
	defer c.state.Unlock()
	c.goOn()
}

func (c *Child) goOn() {
	c.state.stopped = nil
	c.state.continued++
	signalGroup(c.Pid(), syscall.SIGCONT)
}

func (s *state) timesContinued() int {
	s.Lock()
	defer s.Unlock()
	return s.continued
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
