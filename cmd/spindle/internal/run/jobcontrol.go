package run

import (
	"os"
	"time"
)

// At a terminal, the program is a background job, because it has its own process group. Exec treats the program as a
// shell treats its jobs. When the program tries to use the terminal, exec lends it the terminal. When the program
// stops, exec stops too, so that the shell notices. Therefore, Ctrl-Z, fg and bg work as usual. While exec is stopped,
// it sends no heartbeats, so the watchdog kills the program before the lease expires.

// A Terminal is exec's controlling terminal. See child.Terminal.
type Terminal interface {
	Stops() <-chan os.Signal
	Lend(group int) bool
	Lent() bool
	TakeBack(killed bool)
	Suspend() bool
}

// handleKey handles Ctrl-Z. It stops the program if there is one; handleStop then stops exec.
func (x *Exec) handleKey() {
	switch {
	case x.program != nil:
		x.program.Signal(keyStop)
	case x.run.m.signal == nil: // otherwise exec is about to end
		x.Terminal.Suspend()
	}
}

// handleStop handles a program that was stopped or continued.
func (x *Exec) handleStop() {
	n := x.program
	n.stalls = time.Time{}
	switch s := n.Stopped(); {
	case s == nil:
	case asksForTerminal(s) && x.lend():
		n.Continue()
	case x.Terminal != nil && !x.run.m.announcesEnd() && x.suspend():
		n.Continue()
	case x.Terminal != nil && s == keyStop: // no shell would continue exec, or it is about to end, so Ctrl-Z has no effect
		x.lend()
		n.Continue()
	case x.run.m.announcesEnd(): // the program will be continued when it gets its signal to end
	default:
		n.stalls = time.Now().Add(x.lease())
		x.Warn("%s was stopped; if it does not continue within %v, exec will end it and release %s", x.Program, x.lease(), x.run.lock)
	}
}

// suspend stops exec and returns true after exec has been continued. If exec could not be stopped, suspend returns
// false. If the program had the terminal before, suspend lends it the terminal again, unless exec is continued in the
// background.
func (x *Exec) suspend() bool {
	had := x.Terminal.Lent()
	x.Warn("%s is stopped; if it does not continue within %v, %s will be lost and the program killed", x.Program, x.run.term.Left().Round(100*time.Millisecond), x.run.lock)
	if !x.Terminal.Suspend() {
		return false
	}
	if had {
		x.lend()
	}
	return true
}

func (x *Exec) lend() bool {
	return x.Terminal != nil && x.Terminal.Lend(x.program.Pid())
}

// interrupted returns the signal that killed a program that had borrowed the terminal, if a keypress such as Ctrl-C sent
// that signal. Otherwise, it returns nil. Exec does not receive the signal itself, but must act on it so that a keypress
// can end an exec with --restart.
func (x *Exec) interrupted() os.Signal {
	if x.Terminal == nil || !x.Terminal.Lent() {
		return nil
	}
	return interrupt(x.program.Code())
}
