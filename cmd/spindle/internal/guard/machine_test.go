package guard

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
)

// environment is what can happen around a machine, and what it must not do then.
type environment struct {
	machine
	t    *testing.T
	path []event

	competes, withdrew bool
	lock               holding
	waits              bool // for the confirmation
	command            action
	runs               bool // the command
	maybeActive        bool // the service
	accepts            bool // requests, in this term
	announces          bool // the end of this term
	stopped, ended     bool
	terms              int
}

// next are the events that can happen now.
func (v *environment) next() (all []event) {
	add := func(can bool, events ...event) {
		if can {
			all = append(all, events...)
		}
	}
	add(v.competes, electedDead, electedFree)
	add(v.competes && v.withdrew, withdrawn)
	add(v.waits, confirmed)
	add(v.lock != none, lockLost, unhealthy)
	add(v.lock != none && v.accepts && v.handover, requested)
	add(v.announces, announced)
	add(v.runs && v.command == activate, activated, notActivated)
	add(v.runs && v.command == deactivate, deactivated, notDeactivated)
	add(!v.stopped, stopAsked)
	return all
}

// happens lets an event happen, and checks what the machine does.
func (v *environment) happens(e event) {
	v.path = append(slices.Clone(v.path), e)
	switch e {
	case electedDead, electedFree:
		v.competes, v.lock = false, settled
		if e == electedDead {
			v.lock = unsettled
		}
		v.terms++
	case withdrawn:
		v.competes = false
	case confirmed:
		v.waits, v.lock = false, settled
	case lockLost:
		v.leaves()
	case requested:
		v.accepts = false
	case announced:
		v.announces = false
	case stopAsked:
		v.stopped = true
	case activated, notActivated, deactivated, notDeactivated:
		v.runs = false
		v.maybeActive = v.maybeActive && e != deactivated
	}
	for _, a := range v.on(e) {
		v.does(a)
	}
	v.holds(e != requested || v.lock != settled || v.announces || v.command == deactivate, "the end of a settled lock that is requested is announced")
	v.holds(!v.maybeActive || v.lock == settled && (!v.stopped || v.announces) || v.runs && v.command == deactivate,
		"a service that may be active without a settled lock, or after a stop that is not being announced, is being deactivated")
	v.holds(!v.ended || !v.maybeActive && v.lock == none && !v.competes && !v.runs, "nothing is left when guard ends")
}

func (v *environment) leaves() { v.lock, v.waits, v.accepts, v.announces = none, false, false, false }

func (v *environment) does(a action) {
	switch a {
	case activate:
		v.holds(v.lock == settled && !v.stopped && !v.maybeActive, "an inactive service is activated under a settled lock, before a stop")
		v.command, v.runs, v.maybeActive, v.accepts = a, true, true, true
	case deactivate:
		v.holds(!v.runs || v.command == activate, "one deactivation runs at a time")
		v.command, v.runs = a, true
	case announce:
		v.holds(v.handover && v.lock == settled && !v.announces, "the end of a settled lock is announced, once")
		v.announces = true
	case compete, competeLater:
		v.holds(!v.competes && v.lock == none && !v.maybeActive && !v.stopped, "guard competes for a lock that it does not hold, with an inactive service, before a stop")
		v.competes, v.withdrew = true, false
	case withdraw:
		v.holds(v.competes && !v.withdrew, "what competes is withdrawn, once")
		v.withdrew = true
	case wait:
		v.holds(v.lock == unsettled && !v.waits, "guard waits for the confirmation of an unsettled lock, once")
		v.waits = true
	case release:
		v.holds(v.lock == settled && !v.maybeActive, "a settled lock is released once the service is inactive")
		v.leaves()
	case abandon:
		v.holds(v.lock != none, "a lock that is held is left")
		v.leaves()
	case end:
		v.ended = true
	}
}

func (v *environment) holds(ok bool, what string) {
	if !ok {
		v.t.Fatalf("%s, but not after %v", what, v.path)
	}
}

// explore goes through all orders of events, up to a number of them, and returns how many there are.
func (v environment) explore(depth int) int {
	if depth == 0 || v.terms > 3 || v.ended {
		return 1
	}
	all, n := v.next(), 0
	v.holds(len(all) > 0, "something can happen until guard ends")
	for _, e := range all {
		next := v
		next.happens(e)
		n += next.explore(depth - 1)
	}
	return n
}

// Whatever happens in whichever order, a service is active only under a settled lock, and the lock is released only over
// an inactive service.
func TestNoOrderOfEventsLeavesAServiceActiveWithoutItsLock(t *testing.T) {
	for _, handover := range []bool{false, true} {
		v := environment{t: t, maybeActive: true} // nobody knows, at first
		v.handover = handover
		v.path = []event{started}
		for _, a := range v.on(started) {
			v.does(a)
		}
		n := v.explore(12)
		t.Logf("%d orders", n)
		assert.Greater(t, n, 10_000)
	}
}

// What is reported of an earlier term or of an earlier command changes nothing, whatever state guard is in.
func TestWhatIsReportedTooLateChangesNothing(t *testing.T) {
	for _, state := range []machine{
		{service: inactive}, {service: inactive, lock: unsettled}, {service: activating, lock: settled}, {service: active, lock: settled},
		{service: active, lock: settled, announcing: true}, {service: deactivating, lock: settled}, {service: deactivating},
	} {
		for _, late := range []message{
			{event: confirmed}, {event: unhealthy}, {event: lockLost}, {event: requested}, {event: announced},
			{event: activated}, {event: notActivated}, {event: deactivated}, {event: notDeactivated},
		} {
			g := &runner{Guard: &Guard{Say: t.Logf, Warn: t.Logf, Observer: nobody{}, Handover: true}, m: state, number: 2}
			g.m.handover = true
			if state.lock != none {
				g.term = &elect.Keeper{Term: &elect.Term{}}
			}
			late.term, late.command, late.err = &elect.Term{}, 1, errors.New("it was long ago")
			was := g.m
			assert.Empty(t, g.handle(late), "%+v: %v", state, late.event)
			assert.Equal(t, was, g.m, "%+v: %v", state, late.event)
		}
	}
}

// Of two events at the same instant either may come first.
func TestOfTwoEventsAtTheSameInstantEitherMayComeFirst(t *testing.T) {
	free := []event{started, deactivated, electedFree}
	for name, r := range map[string]struct {
		handover bool
		before   []event
		a, b     event
		ab, ba   []action // what is done from the first of the two on
		after    []event  // while the end is announced, or the service deactivated
	}{
		"a stop, a claim": {before: []event{started, deactivated}, a: stopAsked, b: electedFree,
			ab: []action{withdraw, release, end}, ba: []action{activate, deactivate, release, end}, after: []event{deactivated}},
		"a stop, a claim over a dead holder": {before: []event{started, deactivated}, a: stopAsked, b: electedDead,
			ab: []action{withdraw, abandon, end}, ba: []action{wait, abandon, end}},
		"a stop, the end of the wait": {before: []event{started, deactivated, electedDead}, a: stopAsked, b: confirmed,
			ab: []action{abandon, end}, ba: []action{activate, deactivate, release, end}, after: []event{deactivated}},
		"a stop, a loss": {before: append(free, activated), a: stopAsked, b: lockLost, after: []event{deactivated},
			ab: []action{deactivate, end}, ba: []action{deactivate, end}},
		"a stop, a request": {before: append(free, activated), a: stopAsked, b: requested, after: []event{announced, deactivated}, handover: true,
			ab: []action{announce, deactivate, release, end}, ba: []action{announce, deactivate, release, end}},
		"a stop, the end of an activation": {before: free, a: stopAsked, b: activated, after: []event{deactivated},
			ab: []action{deactivate, release, end}, ba: []action{deactivate, release, end}},
		"a loss, a request": {before: append(free, activated), a: lockLost, b: requested, after: []event{deactivated}, handover: true,
			ab: []action{deactivate, compete}, ba: []action{announce, deactivate, compete}},
		"a loss, a failed check": {before: append(free, activated), a: lockLost, b: unhealthy, after: []event{deactivated},
			ab: []action{deactivate, competeLater}, ba: []action{deactivate, competeLater}},
		"a loss, the end of an activation": {before: free, a: lockLost, b: activated, after: []event{deactivated},
			ab: []action{deactivate, compete}, ba: []action{deactivate, compete}},
		"a loss, a deactivation that failed": {before: append(free, activated, unhealthy), a: lockLost, b: notDeactivated, after: []event{deactivated},
			ab: []action{deactivate, competeLater}, ba: []action{abandon, deactivate, competeLater}},
		"a loss, the end of the wait": {before: []event{started, deactivated, electedDead}, a: lockLost, b: confirmed,
			ab: []action{compete}, ba: []action{activate, deactivate, compete}, after: []event{deactivated}},
		"a failed check, the end of the wait": {before: []event{started, deactivated, electedDead}, a: unhealthy, b: confirmed,
			ab: []action{abandon, competeLater}, ba: []action{activate, deactivate, release, competeLater}, after: []event{deactivated}},
	} {
		for _, order := range []struct {
			events []event
			want   []action
		}{{[]event{r.a, r.b}, r.ab}, {[]event{r.b, r.a}, r.ba}} {
			m := machine{handover: r.handover}
			for _, e := range r.before {
				m.on(e)
			}
			var did []action
			for _, e := range order.events {
				did = append(did, m.on(e)...)
			}
			for _, e := range r.after {
				if m.service == deactivating || m.announcing && e == announced {
					did = append(did, m.on(e)...)
				}
			}
			assert.Equal(t, order.want, did, name)
		}
	}
}
