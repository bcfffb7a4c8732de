package run

import (
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// At a terminal, the program is a background job, because it has its own process group. Exec treats the program as a
// shell treats its jobs. When the program tries to use the terminal, exec lends it the terminal. When the program is
// stopped, exec stops too, so that the shell notices. Ctrl-Z, fg and bg therefore work as for any job. While exec is
// stopped, it sends no heartbeats. If it is not continued in time, the watchdog kills the program before the lease
// expires.

// A Terminal is exec's controlling terminal. See child.Terminal.
type Terminal interface {
	Stops() <-chan os.Signal
	Lend(group int) bool
	Lent() bool
	TakeBack(killed bool)
	Suspend() bool
}

// handleKey handles Ctrl-Z. If there is a program, handleKey stops the program, and handleStop then stops exec.
// Otherwise, handleKey stops exec itself.
func (p *programs) handleKey() {
	switch {
	case p.program != nil:
		p.program.Signal(keyStop)
	case p.m.signal == nil: // otherwise exec is about to end
		p.halt()
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
	case p.terminal != nil && !p.m.announcesEnd() && p.suspend():
		n.Continue()
	case p.terminal != nil && s == keyStop: // no shell would continue exec, or it is about to end, so Ctrl-Z has no effect
		p.lend()
		n.Continue()
	case p.m.announcesEnd(): // the program will be continued when it gets its signal to end
	default:
		n.stalls = time.Now().Add(p.lease)
		p.warn("%s was stopped; if it does not continue within %v, exec will end it and release %s", p.args[0], p.lease, p.lock)
	}
}

// suspend stops exec, and returns true after exec has been continued. If exec could not be stopped, suspend returns
// false. If the program had borrowed the terminal, suspend lends it again, unless exec is continued in the background.
func (p *programs) suspend() bool {
	had := p.terminal.Lent()
	p.warn("%s is stopped; if it does not continue within %v, %s will be lost and the program killed", p.args[0], p.term.Left().Round(100*time.Millisecond), p.lock)
	if !p.halt() {
		return false
	}
	if had {
		p.lend()
	}
	return true
}

// halt stops exec after its messages have been written. It returns false if exec could not be stopped.
func (p *programs) halt() bool {
	terminal.Stderr.Flush()
	return p.terminal.Suspend()
}

func (p *programs) lend() bool {
	return p.terminal != nil && p.terminal.Lend(p.program.Pid())
}
