package execcmd

import (
	"os"
	"time"
)

// The program has a group of its own, so at a terminal it is a background job of exec's. What a shell does for its jobs,
// exec does for the program: it lends the terminal when the program asks for it, and stops with the program, so that the
// shell notices. Ctrl-Z, fg and bg then do what they do with any program. While exec is stopped it sends no heartbeats,
// so at the end of the lease the watchdog kills the program.

// keys returns a channel of Ctrl-Z's signals.
func (r *runner) keys() <-chan os.Signal {
	if r.Terminal == nil {
		return nil
	}
	return r.Terminal.Stops()
}

// handleKey stops the program at Ctrl-Z, and with it exec: see handleStop.
func (r *runner) handleKey() {
	if r.program == nil {
		r.Terminal.Suspend()
		return
	}
	r.program.Signal(keyStop)
}

// handleStop handles a program that was stopped or continued.
func (r *runner) handleStop() {
	p := r.program
	p.stalls = time.Time{}
	switch s := p.Stopped(); {
	case s == nil:
	case asksForTerminal(s) && r.lend():
		p.Continue()
	case r.Terminal != nil && r.suspend():
		p.Continue()
	case r.Terminal != nil && s == keyStop: // nobody would continue exec, so the key does nothing
		r.lend()
		p.Continue()
	default:
		p.stalls = time.Now().Add(r.lease())
		r.Warn("%s was stopped: if it does not go on within %v, it is ended, and %s is released", r.Program, r.lease(), r.name())
	}
}

// suspend stops exec, and reports whether it did. When exec continues in the foreground, the program gets the terminal back
// if it had it before.
func (r *runner) suspend() bool {
	had := r.Terminal.Lent()
	r.Warn("%s is stopped: if it does not go on within %v, %s is lost and it is killed", r.Program, r.term.Left().Round(100*time.Millisecond), r.name())
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

// interrupted returns the signal if a key has ended a program that had the terminal, or nil. Exec ends too, though it did
// not get the signal: otherwise nobody could end an exec with --restart.
func (r *runner) interrupted() os.Signal {
	if r.Terminal == nil || !r.Terminal.Lent() {
		return nil
	}
	return interrupt(r.program.Code())
}
