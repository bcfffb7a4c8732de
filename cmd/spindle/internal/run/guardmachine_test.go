package run

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
)

// environment is what can happen around a machine, and what it must not do then.
type environment struct {
	guardMachine
	t    *testing.T
	path []happening

	competes, withdrew bool
	lock               standing
	waits              bool // for the confirmation
	command            deed
	runs               bool // the command
	maybeActive        bool // the service
	accepts            bool // requests, in this term
	announces          bool // the end of this term
	stopped, ended     bool
	terms              int
}

// next are the events that can happen now.
func (v *environment) next() (all []happening) {
	add := func(can bool, events ...happening) {
		if can {
			all = append(all, events...)
		}
	}
	add(v.competes, electedDead, elected)
	add(v.competes && v.withdrew, withdrawn)
	add(v.waits, confirmed)
	add(v.lock != none, lost, unfit)
	add(v.lock != none && v.accepts && v.handover, requested)
	add(v.announces, announced)
	add(v.runs && v.command == activate, activated, notActivated)
	add(v.runs && v.command == deactivate, deactivated, notDeactivated)
	add(!v.stopped, ending)
	return all
}

// happens lets an event happen, and checks what the machine does.
func (v *environment) happens(e happening) {
	v.path = append(slices.Clone(v.path), e)
	switch e {
	case electedDead, elected:
		v.competes, v.lock = false, settled
		if e == electedDead {
			v.lock = unsettled
		}
		v.terms++
	case withdrawn:
		v.competes = false
	case confirmed:
		v.waits, v.lock = false, settled
	case lost:
		v.leaves()
	case requested:
		v.accepts = false
	case announced:
		v.announces = false
	case ending:
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

func (v *environment) does(a deed) {
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
	case confirm:
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
		v.path = []happening{begun}
		for _, a := range v.on(begun) {
			v.does(a)
		}
		n := v.explore(12)
		t.Logf("%d orders", n)
		assert.Greater(t, n, 10_000)
	}
}

// What is reported of an earlier term or of an earlier command changes nothing, whatever state guard is in.
func TestWhatIsReportedTooLateChangesNothing(t *testing.T) {
	for _, state := range []guardMachine{
		{service: inactive}, {service: inactive, lock: unsettled}, {service: activating, lock: settled}, {service: active, lock: settled},
		{service: active, lock: settled, announcing: true}, {service: deactivating, lock: settled}, {service: deactivating},
	} {
		for _, late := range []event{
			{what: confirmed}, {what: unfit}, {what: lost}, {what: requested}, {what: announced},
			{what: activated}, {what: notActivated}, {what: deactivated}, {what: notDeactivated},
		} {
			g := &guardRunner{Guard: &Guard{Say: t.Logf, Warn: t.Logf, Observer: nobody{}, Handover: true}, m: state, number: 2}
			g.m.handover = true
			if state.lock != none {
				g.term = &elect.Keeper{Term: &elect.Term{}}
			}
			late.term, late.command, late.err = &elect.Term{}, 1, errors.New("it was long ago")
			was := g.m
			assert.Empty(t, g.handle(late), "%+v: %v", state, late.what)
			assert.Equal(t, was, g.m, "%+v: %v", state, late.what)
		}
	}
}

// Of two events at the same instant either may come first.
func TestOfTwoEventsOfGuardAtTheSameInstantEitherMayComeFirst(t *testing.T) {
	free := []happening{begun, deactivated, elected}
	for name, r := range map[string]struct {
		handover bool
		before   []happening
		a, b     happening
		ab, ba   []deed      // what is done from the first of the two on
		after    []happening // while the end is announced, or the service deactivated
	}{
		"a stop, a claim": {before: []happening{begun, deactivated}, a: ending, b: elected,
			ab: []deed{withdraw, release, end}, ba: []deed{activate, deactivate, release, end}, after: []happening{deactivated}},
		"a stop, a claim over a dead holder": {before: []happening{begun, deactivated}, a: ending, b: electedDead,
			ab: []deed{withdraw, abandon, end}, ba: []deed{confirm, abandon, end}},
		"a stop, the end of the wait": {before: []happening{begun, deactivated, electedDead}, a: ending, b: confirmed,
			ab: []deed{abandon, end}, ba: []deed{activate, deactivate, release, end}, after: []happening{deactivated}},
		"a stop, a loss": {before: append(free, activated), a: ending, b: lost, after: []happening{deactivated},
			ab: []deed{deactivate, end}, ba: []deed{deactivate, end}},
		"a stop, a request": {before: append(free, activated), a: ending, b: requested, after: []happening{announced, deactivated}, handover: true,
			ab: []deed{announce, deactivate, release, end}, ba: []deed{announce, deactivate, release, end}},
		"a stop, the end of an activation": {before: free, a: ending, b: activated, after: []happening{deactivated},
			ab: []deed{deactivate, release, end}, ba: []deed{deactivate, release, end}},
		"a loss, a request": {before: append(free, activated), a: lost, b: requested, after: []happening{deactivated}, handover: true,
			ab: []deed{deactivate, compete}, ba: []deed{announce, deactivate, compete}},
		"a loss, a failed check": {before: append(free, activated), a: lost, b: unfit, after: []happening{deactivated},
			ab: []deed{deactivate, competeLater}, ba: []deed{deactivate, competeLater}},
		"a loss, the end of an activation": {before: free, a: lost, b: activated, after: []happening{deactivated},
			ab: []deed{deactivate, compete}, ba: []deed{deactivate, compete}},
		"a loss, a deactivation that failed": {before: append(free, activated, unfit), a: lost, b: notDeactivated, after: []happening{deactivated},
			ab: []deed{deactivate, competeLater}, ba: []deed{abandon, deactivate, competeLater}},
		"a loss, the end of the wait": {before: []happening{begun, deactivated, electedDead}, a: lost, b: confirmed,
			ab: []deed{compete}, ba: []deed{activate, deactivate, compete}, after: []happening{deactivated}},
		"a failed check, the end of the wait": {before: []happening{begun, deactivated, electedDead}, a: unfit, b: confirmed,
			ab: []deed{abandon, competeLater}, ba: []deed{activate, deactivate, release, competeLater}, after: []happening{deactivated}},
	} {
		for _, order := range []struct {
			events []happening
			want   []deed
		}{{[]happening{r.a, r.b}, r.ab}, {[]happening{r.b, r.a}, r.ba}} {
			m := guardMachine{handover: r.handover}
			for _, e := range r.before {
				m.on(e)
			}
			var did []deed
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
