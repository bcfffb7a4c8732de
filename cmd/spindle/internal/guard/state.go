package guard

import "github.com/spindle-lock/spindle/internal/elect"

// A State is what a machine does now, in words for people.
type State string

// The states.
const (
	Deactivating State = "deactivating the service"
	Stuck        State = "THE SERVICE COULD NOT BE DEACTIVATED, trying again"
	Competing    State = "on standby"
	Confirming   State = "holding the lock: waiting until its last holder must have deactivated"
	Activating   State = "activating the service"
	Working      State = "the service is active"
)

// An Observer learns what happens. The loop calls its methods one at a time, and they must return at once.
type Observer interface {
	// Elected says that the lock is held, and Over that it is not any more. Lost comes first if it was not given up.
	Elected(t *elect.Term)
	Lost(why error)
	Over()
	// Changed says that the state has changed.
	Changed(s State)
}

type nobody struct{}

func (nobody) Elected(*elect.Term) {}
func (nobody) Lost(error)          {}
func (nobody) Over()               {}
func (nobody) Changed(State)       {}

// tellState tells the observer of a change.
func (g *runner) tellState() {
	if s := g.state(); s != g.last {
		g.last = s
		g.Observer.Changed(s)
	}
}

func (g *runner) state() State {
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
