package execcmd

import (
	"os"
	"time"
)

// At a terminal, the program is a background job, because it has its own process group. Exec does for the program what
// a shell does for its jobs. It lends the terminal to the program when the program tries to use it, and it stops when
// the program stops, so that the shell notices. Ctrl-Z, fg and bg therefore work as usual. While exec is stopped, it
// sends no heartbeats, so the watchdog kills the program at the end of the lease.

// keys returns the channel that receives Ctrl-Z.
func (r *runner) keys() <-chan os.Signal {
	if r.Terminal == nil {
		return nil
	}
	return r.Terminal.Stops()
}

// handleKey handles Ctrl-Z. It stops the program if there is one; handleStop then stops exec.
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
	case r.Terminal != nil && s == keyStop: // no shell would continue exec, so Ctrl-Z has no effect
		r.lend()
		p.Continue()
	default:
		p.stalls = time.Now().Add(r.lease())
		r.Warn("%s was stopped; if it does not continue within %v, exec will end it and release %s", r.Program, r.lease(), r.name())
	}
}

// suspend stops exec until it is continued, and reports whether exec was stopped. If the program had the terminal, and
// exec continues in the foreground, suspend gives the terminal back to the program.
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

// interrupted returns the signal if a key, such as Ctrl-C, ended a program that had the terminal, or nil. Exec does not
// get that signal, but must act on it: otherwise no key could end an exec with --restart.
func (r *runner) interrupted() os.Signal {
	if r.Terminal == nil || !r.Terminal.Lent() {
		return nil
	}
	return interrupt(r.program.Code())
}
