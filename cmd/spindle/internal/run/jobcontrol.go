package run

import (
	"os"
	"time"
)

// At a terminal, the program is a background job, because it has its own process group. Exec treats the program as a
// shell treats its jobs. When the program tries to use the terminal, exec lends it the terminal. When the program
// stops, exec stops too, so that the shell notices. Therefore, Ctrl-Z, fg and bg work as usual. While exec is stopped,
// it sends no heartbeats, so the watchdog kills the program before the lease expires.

// keys returns the channel that receives Ctrl-Z.
func (r *runner) keys() <-chan os.Signal {
	if r.Terminal == nil {
		return nil
	}
	return r.Terminal.Stops()
}

// handleKey handles Ctrl-Z. It stops the program if there is one; handleStop then stops exec.
func (r *runner) handleKey() {
	switch {
	case r.program != nil:
		r.program.Signal(keyStop)
	case r.m.signal == nil: // otherwise exec is about to end
		r.Terminal.Suspend()
	}
}

// handleStop handles a program that was stopped or continued.
func (r *runner) handleStop() {
	p := r.program
	p.stalls = time.Time{}
	switch s := p.Stopped(); {
	case s == nil:
	case asksForTerminal(s) && r.lend():
		p.Continue()
	case r.Terminal != nil && !r.announcesEnd() && r.suspend():
		p.Continue()
	case r.Terminal != nil && s == keyStop: // no shell would continue exec, or it is about to end, so Ctrl-Z has no effect
		r.lend()
		p.Continue()
	case r.announcesEnd(): // the program will be continued when it gets its signal to end
	default:
		p.stalls = time.Now().Add(r.lease())
		r.Warn("%s was stopped; if it does not continue within %v, exec will end it and release %s", r.Program, r.lease(), r.name())
	}
}

// announcesEnd reports whether exec has received a signal to end, and will pass it on to the program once the other
// candidates know that the lock will be released. If exec stopped then, the signal would have no effect.
func (r *runner) announcesEnd() bool { return r.m.phase == announcing && r.m.signal != nil }

// suspend stops exec and returns true after exec has been continued. If exec could not be stopped, suspend returns
// false. If the program had the terminal before, suspend lends it the terminal again, unless exec is continued in the
// background.
func (r *runner) suspend() bool {
	had := r.Terminal.Lent()
	r.Warn("%s is stopped; if it does not continue within %v, %s will be lost and the program killed", r.Program, r.term.Left().Round(100*time.Millisecond), r.name())
	if !r.Terminal.Suspend() {
		return false
	}
	if had {
		r.lend()
	}
	return true
}

func (r *runner) lend() bool {
	return r.Terminal != nil && r.Terminal.Lend(r.program.Pid())
}

// takeBack takes the terminal back from a program that has ended.
func (r *runner) takeBack() {
	if r.Terminal != nil {
		r.Terminal.TakeBack(r.program.Code() > 128)
	}
}

// interrupted returns the signal that killed a program that had borrowed the terminal, if a keypress such as Ctrl-C sent
// that signal. Otherwise, it returns nil. Exec does not receive the signal itself, but must act on it so that a keypress
// can end an exec with --restart.
func (r *runner) interrupted() os.Signal {
	if r.Terminal == nil || !r.Terminal.Lent() {
		return nil
	}
	return interrupt(r.program.Code())
}
