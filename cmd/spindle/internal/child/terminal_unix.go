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

// A Terminal is this process's controlling terminal. It must not be used by several goroutines at the same time.
//
// A program starts in a background process group, without the terminal. If the kernel stops the program with SIGTTIN or
// SIGTTOU for trying to use the terminal, this process lends the terminal to the program. Until then, keys such as
// Ctrl-C signal this process, and if this process is part of a pipeline, the rest of the pipeline can use the terminal.
type Terminal struct {
	file  *os.File
	own   int            // this process's group
	lent  int            // the group that has borrowed the terminal, or 0
	mode  *term.State    // the terminal's mode before it was lent
	stops chan os.Signal // receives Ctrl-Z while this process is in the foreground
}

// OpenTerminal opens the controlling terminal, or returns nil if there is none. It makes this process ignore SIGTTOU,
// so that this process can write to the terminal, and take it back, while a program has borrowed it. Programs that
// start behind a gate don't inherit this setting.
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

// programsGetTTOU is set if this process ignores SIGTTOU but its programs must not.
var programsGetTTOU bool

// Stops returns the channel that receives Ctrl-Z, which no longer stops this process.
func (t *Terminal) Stops() <-chan os.Signal { return t.stops }

func (t *Terminal) foreground() (group int, err error) {
	return unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
}

func (t *Terminal) give(group int) error {
	return unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
}

// Lend puts a group in the terminal's foreground, if this process's own group is in the foreground. It reports whether
// the given group is in the foreground afterwards.
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
		return false // the group has just exited
	}
	t.lent = group
	return true
}

// Lent reports whether the terminal is lent to a group.
func (t *Terminal) Lent() bool { return t.lent != 0 }

// TakeBack ends the loan of the terminal. If the program was killed, it had no chance to restore the terminal's mode,
// so TakeBack restores the mode. If another group, such as a shell, has taken the terminal while this process was
// stopped, TakeBack leaves the terminal to that group.
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

// Suspend takes the terminal back and stops this process's group, as Ctrl-Z does. When the group is continued, Suspend
// returns true. If the kernel refuses to stop the group, Suspend returns false. The kernel does not stop an orphaned
// process group, because no shell is left to continue it; see setpgid(2).
func (t *Terminal) Suspend() bool {
	t.TakeBack(false)
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	stopSelf()
	stopped := false
	for range steps { // wait in steps: this thread may run on briefly, and the time while it is stopped counts for only one step
		select {
		case <-resumed:
			stopped = true
		case <-time.After(soon / steps):
			continue
		}
		break
	}
	select {
	case <-t.stops: // the SIGTSTP that was sent to the whole group
	case <-time.After(soon):
	}
	time.Sleep(soon / steps) // a signal that was sent before SIGCONT may still be on its way, in another thread
	return stopped
}

const (
	soon  = 100 * time.Millisecond
	steps = 10
)

// unignoreTTOU makes sure that a program does not ignore SIGTTOU when it starts, even if this process inherited that
// setting. It installs a handler for the signal, because exec restores the default action only for signals that have a
// handler.
func unignoreTTOU() { signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU) }
