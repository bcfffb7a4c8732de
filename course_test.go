package spindle

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// surroundings are the events that can happen around a term, and the actions that it must not take in the current
// state.
type surroundings struct {
	course
	t    *testing.T
	path []happening

	ended, announcing, canceled, held bool
	working                           bool
	reminders                         int // calls of StepDown and requests that can still come
}

// next returns the events that can happen in the current state.
func (s *surroundings) next() (all []happening) {
	add := func(can bool, what happening) {
		if can {
			all = append(all, what)
		}
	}
	add(!s.ended, runEnded)
	add(s.reminders > 0, asked)
	add(s.reminders > 0 && s.handover && !s.canceled, requested)
	add(s.announcing, announced)
	add(s.working, returned)
	add(s.held, termEnded)
	add(s.ended && (s.stage == draining || s.stage == lost), timeIsUp)
	return all
}

// happens lets an event happen, and checks the resulting actions.
func (s *surroundings) happens(what happening) {
	s.path = append(slices.Clone(s.path), what)
	switch what {
	case runEnded:
		s.ended = true
	case asked, requested:
		s.reminders--
	case announced:
		s.announcing = false
	case returned:
		s.working = false
	case termEnded:
		s.held = false
	}
	for _, a := range s.on(event{what: what}) {
		s.does(a, what)
	}
	s.holds(s.stage == over || s.held || s.stage == lost, "a lock that is lost is known to be")
	s.holds(s.stage != over || !s.working || what == timeIsUp, "nothing ends before the work has returned, or has had its time")
	s.holds(what != timeIsUp || s.stage == over, "nothing is waited for after its time")
}

func (s *surroundings) does(a act, what happening) {
	s.holds(a == lose || s.held || a == abandon, "nothing is done with a lock that is lost")
	switch a {
	case announce:
		s.holds(s.working || what != returned, "nothing is announced because work has returned")
		s.holds(!s.announcing && !s.canceled && (what != runEnded || s.handover), "a term is announced once, before its work is canceled")
		s.announcing = true
	case cancelWork:
		s.holds(!s.canceled, "the work is canceled once")
		s.holds(what != returned || s.announcing || !s.keepOnReturn, "a term goes on without its work if it is to")
		s.holds(s.early == (what == returned && !s.announcing), "a term that ends otherwise is not a return")
		s.canceled, s.announcing = true, false
	case release:
		s.holds(s.canceled && !s.working, "the lock is released once the work has returned")
		s.held = false
	case expire:
		s.holds(s.canceled && s.working && s.ended, "the lock is left to expire if work does not return in time")
		s.held = false
	case lose:
		s.holds(!s.held, "a lock that is held is not taken for lost")
		s.announcing = false
	case abandon:
		s.holds(s.working && s.ended, "work is abandoned once it has had its time")
	}
}

func (s *surroundings) holds(ok bool, what string) {
	if !ok {
		s.t.Fatalf("%s, but not after %v (handover %v, keep on return %v)", what, s.path, s.handover, s.keepOnReturn)
	}
}

// explore goes through all orders of events, and returns the number of orders.
func (s surroundings) explore() int {
	if s.stage == over {
		return 1
	}
	all, n := s.next(), 0
	s.holds(len(all) > 0, "something can happen until the term is over")
	for _, what := range all {
		next := s
		next.happens(what)
		n += next.explore()
	}
	return n
}

// Whatever events happen, and in whatever order, the work is canceled once, before the lock is released. The lock is
// released only after the work has returned, and each term comes to an end.
func TestNoOrderOfEventsReleasesALockBeforeItsWorkHasReturned(t *testing.T) {
	n := 0
	for _, l := range []course{{}, {handover: true}, {keepOnReturn: true}, {handover: true, keepOnReturn: true}} {
		for _, working := range []bool{true, false} {
			l.idle = !working
			s := surroundings{course: l, t: t, working: working, held: true, reminders: 3}
			n += s.explore()
		}
	}
	t.Logf("%d orders", n)
	assert.Greater(t, n, 1000)
}
