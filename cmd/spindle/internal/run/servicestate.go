package run

import "github.com/spindle-lock/spindle/internal/elect"

// A State describes for users what a machine is doing.
type State string

// The states.
const (
	Deactivating State = "deactivating the service"
	Stuck        State = "THE SERVICE COULD NOT BE DEACTIVATED, trying again"
	Competing    State = "on standby"
	Confirming   State = "holding the lock, and waiting while the last holder deactivates the service"
	Activating   State = "activating the service"
	Working      State = "the service is active"
)

// An Observer is notified of events. The loop calls its methods one at a time, and they must return immediately.
type Observer interface {
	// Elected is called when this machine has acquired the lock, and Over when it no longer holds the lock. If the lock
	// was lost rather than given up, Lost is called before Over.
	Elected(t *elect.Term)
	Lost(why error)
	Over()
	// Changed is called when the state has changed.
	Changed(s State)
}

type nobody struct{}

func (nobody) Elected(*elect.Term) {}
func (nobody) Lost(error)          {}
func (nobody) Over()               {}
func (nobody) Changed(State)       {}

// tellState notifies the observer if the state has changed.
func (g *guardRunner) tellState() {
	if s := g.state(); s != g.last {
		g.last = s
		g.Observer.Changed(s)
	}
}

func (g *guardRunner) state() State {
	switch m := &g.m; {
	case m.service == deactivating && g.retry:
		return Stuck
	case m.service == activating:
		return Activating
	case m.service == active:
		return Working
	case m.service == inactive && m.lock == unsettled:
		return Confirming
	case m.service == inactive && !m.stopping:
		return Competing
	}
	return Deactivating
}
