//go:build unix

package child

import (
	"errors"
	"os"
	"syscall"
)

// await waits for the program's end, and notes meanwhile when it is stopped, and when it goes on.
func (c *Child) await() {
	defer func() { _ = c.cmd.Process.Release() }()
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.Pid(), &status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // it is nobody's child any more
			c.code = CannotRun
			return
		case status.Stopped():
			c.note(status.StopSignal())
		case status.Continued():
			c.note(nil)
		default:
			c.code = exitCode(status)
			return
		}
	}
}

// note replaces what is known of the program, which is what counts: a stop that is over by now is of no interest.
func (c *Child) note(stopped os.Signal) {
	c.stopped.Store(&stopped)
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// Continue lets a group that was stopped go on.
func (c *Child) Continue() { signalGroup(c.Pid(), syscall.SIGCONT) }
