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
func (p *programs) handleKey() {
	switch {
	case p.program != nil:
		p.program.Signal(keyStop)
	case p.run.m.signal == nil: // otherwise exec is about to end
		p.Terminal.Suspend()
	}
}

// handleStop handles a program that was stopped or continued.
func (p *programs) handleStop() {
	n := p.program
	n.stalls = time.Time{}
	switch s := n.Stopped(); {
	case s == nil:
	case asksForTerminal(s) && p.lend():
		n.Continue()
	case p.Terminal != nil && !p.announcesEnd() && p.suspend():
		n.Continue()
	case p.Terminal != nil && s == keyStop: // no shell would continue exec, or it is about to end, so Ctrl-Z has no effect
		p.lend()
		n.Continue()
	case p.announcesEnd(): // the program will be continued when it gets its signal to end
	default:
		n.stalls = time.Now().Add(p.lease())
		p.Warn("%s was stopped; if it does not continue within %v, exec will end it and release %s", p.Program, p.lease(), p.run.lock)
	}
}

// announcesEnd reports whether exec has received a signal to end, and will pass it on to the program once the other
// candidates know that the lock will be released. If exec stopped then, the signal would have no effect.
func (p *programs) announcesEnd() bool { return p.run.m.phase == announcing && p.run.m.signal != nil }

// suspend stops exec and returns true after exec has been continued. If exec could not be stopped, suspend returns
// false. If the program had the terminal before, suspend lends it the terminal again, unless exec is continued in the
// background.
func (p *programs) suspend() bool {
	had := p.Terminal.Lent()
	p.Warn("%s is stopped; if it does not continue within %v, %s will be lost and the program killed", p.Program, p.run.term.Left().Round(100*time.Millisecond), p.run.lock)
	if !p.Terminal.Suspend() {
		return false
	}
	if had {
		p.lend()
	}
	return true
}

func (p *programs) lend() bool {
	return p.Terminal != nil && p.Terminal.Lend(p.program.Pid())
}

// interrupted returns the signal that killed a program that had borrowed the terminal, if a keypress such as Ctrl-C sent
// that signal. Otherwise, it returns nil. Exec does not receive the signal itself, but must act on it so that a keypress
// can end an exec with --restart.
func (p *programs) interrupted() os.Signal {
	if p.Terminal == nil || !p.Terminal.Lent() {
		return nil
	}
	return interrupt(p.program.Code())
}
