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
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.Pid(), &status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // the program is no longer this process's child
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

// note replaces the program's recorded state, of which only the latest matters.
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

// Continue continues a stopped group.
func (c *Child) Continue() { signalGroup(c.Pid(), syscall.SIGCONT) }
