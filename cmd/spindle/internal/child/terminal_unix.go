//go:build unix

package child

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A Terminal is this process's controlling terminal. A program in its own group gets the terminal when it first uses it:
// the kernel then stops the program with SIGTTIN or SIGTTOU. Until then this process gets the signals of the terminal's
// keys, and the other programs of a pipeline keep the terminal. One goroutine calls its methods.
type Terminal struct {
	file  *os.File
	own   int            // this process's group
	lent  int            // the group that it is lent to, or 0
	mode  *term.State    // before it was lent
	stops chan os.Signal // Ctrl-Z, while this process has the terminal
}

// OpenTerminal returns nil if this process has no terminal. It makes this process ignore SIGTTOU, so that it may write to a
// terminal that a program has. Programs behind a gate still get that signal.
func OpenTerminal() *Terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &Terminal{file: f, own: thisGroup(), stops: make(chan os.Signal, 1)}
	if _, err := t.foreground(); err != nil {
		_ = f.Close()
		return nil
	}
	if !signal.Ignored(syscall.SIGTTOU) {
		signal.Ignore(syscall.SIGTTOU)
		programsGetTTOU = true
	}
	signal.Notify(t.stops, syscall.SIGTSTP)
	return t
}

// programsGetTTOU is set if this process ignores SIGTTOU, and its programs must not.
var programsGetTTOU bool

// Stops returns a channel of Ctrl-Z's signals, which no longer stop this process.
func (t *Terminal) Stops() <-chan os.Signal { return t.stops }

func (t *Terminal) foreground() (group int, err error) {
	return unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
}

func (t *Terminal) give(group int) error {
	return unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
}

// Lend gives the terminal to the group if this process has it. It reports whether the group has it now.
func (t *Terminal) Lend(group int) bool {
	switch has, err := t.foreground(); {
	case err != nil:
		return false
	case has == group:
		return true
	case has != t.own:
		return false
	}
	t.mode, _ = term.GetState(int(t.file.Fd()))
	if t.give(group) != nil {
		return false // the group has just ended
	}
	t.lent = group
	return true
}

// Lent reports whether a group has the terminal from this process.
func (t *Terminal) Lent() bool { return t.lent != 0 }

// TakeBack undoes Lend. If the program was killed, TakeBack also restores the terminal's mode, which the program could not. A
// shell that took the terminal while this process was stopped keeps it.
func (t *Terminal) TakeBack(killed bool) {
	lent := t.lent
	if t.lent = 0; lent == 0 {
		return
	}
	has, err := t.foreground()
	if err != nil || has != lent && has != t.own && !errors.Is(syscall.Kill(-has, 0), syscall.ESRCH) {
		return
	}
	_ = t.give(t.own)
	if killed && t.mode != nil {
		_ = term.Restore(int(t.file.Fd()), t.mode)
	}
}

// Suspend takes the terminal back and stops the group of this process, as Ctrl-Z does. It returns once the group is
// continued. It reports whether the group was stopped: the kernel does not stop an orphaned process group, which nobody
// would continue (setpgid(2)).
func (t *Terminal) Suspend() bool {
	t.TakeBack(false)
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTTIN) // Go never gives SIGTSTP its default action back
	stopped := false
	for range steps { // of running, as this thread may go on for a little: time passes while it is stopped, but only in one step
		select {
		case <-resumed:
			stopped = true
		case <-time.After(soon / steps):
			continue
		}
		break
	}
	select {
	case <-t.stops: // what was sent to the others of the group
	case <-time.After(soon):
	}
	return stopped
}

const (
	soon  = 100 * time.Millisecond
	steps = 10
)

// unignoreTTOU lets a program get SIGTTOU even if this process inherited it ignored: exec resets a caught signal to its
// default action.
func unignoreTTOU() { signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU) }
