//go:build unix

package run

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// standing is how this machine holds the lock.
type standing int

const (
	none standing = iota
	unsettled
	settled
)

// environment is what can happen around a machine with a service, and what it must not do then.
type environment struct {
	machine
	t    *testing.T
	path []happening

	competes, withdrew bool
	lock               standing
	waits              bool // for the confirmation
	runs               bool // a command
	ends               bool // the command is a deactivation
	maybeActive        bool // the service
	accepts            bool // requests, in this term
	announces          bool // the end of this term
	stopped            bool
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
	add(v.waits, due)
	add(v.lock != none, lost, unfit)
	add(v.lock != none && v.accepts && v.handover, requested)
	add(v.announces, announced)
	add(v.runs && !v.ends, activated, unfit)
	add(v.runs && v.ends, exited, notExited)
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
	case due:
		v.waits, v.lock = false, settled
	case lost:
		v.leaves()
	case requested:
		v.accepts = false
	case announced:
		v.announces = false
	case ending:
		v.stopped = true
	case activated, exited, notExited:
		v.runs = false
		v.maybeActive = v.maybeActive && e != exited
	}
	v.tell(event{what: e, signal: syscall.SIGTERM, err: errors.New("why")})
	v.holds(e != requested || v.lock != settled || v.announces || v.ends, "the end of a settled lock that is requested is announced")
	v.holds(!v.maybeActive || v.lock == settled && (!v.stopped || v.announces) || v.runs && v.ends,
		"a service that may be active without a settled lock, or after a stop that is not being announced, is being deactivated")
	v.holds(v.phase != ended || !v.maybeActive && v.lock == none && !v.competes && !v.runs, "nothing is left when guard ends")
}

func (v *environment) tell(e event) {
	for _, a := range v.on(e) {
		v.does(a.do)
	}
}

func (v *environment) leaves() { v.lock, v.waits, v.accepts, v.announces = none, false, false, false }

func (v *environment) does(a deed) {
	switch a {
	case start:
		v.holds(v.lock == settled && !v.stopped && !v.maybeActive, "an inactive service is activated under a settled lock, before a stop")
		v.ends, v.runs, v.maybeActive = false, true, true
		v.tell(event{what: started})
	case watchRequests:
		v.accepts = true
	case pass, limit, kill:
		v.holds(!v.runs || !v.ends, "one deactivation runs at a time")
		v.ends, v.runs = true, true
	case announce:
		v.holds(v.handover && v.lock == settled && !v.announces, "the end of a settled lock is announced, once")
		v.announces = true
	case compete, competeAtOnce, competeLater:
		v.holds(v.turn == (turn{}), "nothing of a turn counts in the next one")
		v.holds(!v.competes && v.lock == none && !v.maybeActive && !v.stopped, "guard competes for a lock that it does not hold, with an inactive service, before a stop")
		v.competes, v.withdrew = true, false
	case withdraw:
		v.holds(v.competes && !v.withdrew, "what competes is withdrawn, once")
		v.withdrew = true
	case check:
		v.holds(v.lock == unsettled && !v.waits, "guard waits for the confirmation of an unsettled lock, once")
		v.waits = true
	case release:
		v.holds(v.lock == settled && !v.maybeActive, "a settled lock is released once the service is inactive")
		v.leaves()
		v.tell(event{what: released})
	case abandon:
		v.leaves()
	}
}

func (v *environment) holds(ok bool, what string) {
	if !ok {
		v.t.Fatalf("%s, but not after %v", what, v.path)
	}
}

// explore goes through all orders of events, up to a number of them, and returns how many there are.
func (v environment) explore(depth int) int {
	if depth == 0 || v.terms > 3 || v.phase == ended {
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
		v.machine = machine{service: true, restart: true, handover: handover}
		v.path = []happening{begun}
		v.tell(event{what: begun})
		n := v.explore(12)
		t.Logf("%d orders", n)
		assert.Greater(t, n, 10_000)
	}
}

// What is reported of an earlier command changes nothing.
func TestWhatIsReportedTooLateChangesNothing(t *testing.T) {
	for _, what := range []happening{activated, unfit, exited, notExited} {
		s := (&Guard{command: command{Candidate: &elect.Candidate{}, Say: t.Logf, Warn: t.Logf}}).newServices()
		s.number = 2
		assert.Zero(t, s.hears(event{what: what, command: 1}))
		assert.False(t, s.retry)
		assert.Equal(t, what, s.hears(event{what: what, command: 2}).what)
	}
}

// Of two events at the same instant either may come first.
func TestOfTwoEventsOfGuardAtTheSameInstantEitherMayComeFirst(t *testing.T) {
	free := []happening{begun, exited, elected}
	for name, r := range map[string]struct {
		handover bool
		before   []happening
		a, b     happening
		ab, ba   []deed      // what is done from the first of the two on
		after    []happening // while the end is announced, or the service deactivated
	}{
		"a stop, a claim": {before: []happening{begun, exited}, a: ending, b: elected,
			ab: []deed{withdraw, release}, ba: []deed{keep, start, pass, release}, after: []happening{exited}},
		"a stop, a claim over a dead holder": {before: []happening{begun, exited}, a: ending, b: electedDead,
			ab: []deed{withdraw, abandon}, ba: []deed{keep, check, abandon}},
		"a stop, the end of the wait": {before: []happening{begun, exited, electedDead}, a: ending, b: due,
			ab: []deed{abandon}, ba: []deed{start, pass, release}, after: []happening{exited}},
		"a stop, a loss": {before: append(free, activated), a: ending, b: lost, after: []happening{exited},
			ab: []deed{pass, abandon}, ba: []deed{limit, abandon}},
		"a stop, a request": {before: append(free, activated), a: ending, b: requested, after: []happening{announced, exited}, handover: true,
			ab: []deed{announce, pass, release}, ba: []deed{announce, pass, release}},
		"a stop, the end of an activation": {before: free, a: ending, b: activated, after: []happening{exited},
			ab: []deed{pass, release}, ba: []deed{pass, release}},
		"a stop that is announced, the end of an activation": {before: free, a: ending, b: activated, after: []happening{announced, exited}, handover: true,
			ab: []deed{pass, release}, ba: []deed{announce, pass, release}},
		"a loss, a request": {before: append(free, activated), a: lost, b: requested, after: []happening{exited}, handover: true,
			ab: []deed{limit, abandon, competeAtOnce}, ba: []deed{announce, limit, abandon, competeAtOnce}},
		"a loss, a failed check": {before: append(free, activated), a: lost, b: unfit, after: []happening{exited},
			ab: []deed{limit, abandon, competeLater}, ba: []deed{limit, abandon, competeLater}},
		"a loss, the end of an activation": {before: free, a: lost, b: activated, after: []happening{exited},
			ab: []deed{limit, abandon, competeAtOnce}, ba: []deed{limit, abandon, competeAtOnce}},
		"a loss, a deactivation that failed": {before: append(free, activated, unfit), a: lost, b: notExited, after: []happening{exited},
			ab: []deed{kill, abandon, competeLater}, ba: []deed{abandon, kill, abandon, competeLater}},
		"a loss, the end of the wait": {before: []happening{begun, exited, electedDead}, a: lost, b: due,
			ab: []deed{abandon, competeAtOnce}, ba: []deed{start, limit, abandon, competeAtOnce}, after: []happening{exited}},
		"a failed check, the end of the wait": {before: []happening{begun, exited, electedDead}, a: unfit, b: due,
			ab: []deed{abandon, competeLater}, ba: []deed{start, limit, release, competeLater}, after: []happening{exited}},
	} {
		tell := func(d *drive, all ...happening) {
			for _, e := range all {
				d.on(event{what: e, signal: syscall.SIGTERM, by: table.ByOperator, err: errSuperseded})
			}
		}
		for _, order := range []struct {
			events []happening
			want   []deed
		}{{[]happening{r.a, r.b}, r.ab}, {[]happening{r.b, r.a}, r.ba}} {
			d := &drive{machine: machine{service: true, restart: true, handover: r.handover}}
			tell(d, r.before...)
			d.deeds = nil
			tell(d, order.events...)
			for _, e := range r.after {
				if d.phase == stopping || d.phase == announcing && e == announced {
					tell(d, e)
				}
			}
			did := slices.DeleteFunc(d.deeds, func(a deed) bool { return a == watchRequests })
			assert.Equal(t, order.want, did, name)
		}
	}
}
