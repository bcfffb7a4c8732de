// Package fair decides when a waiter may try to claim a lock. Waiters are served in the order of their tickets in the
// table, and can pass other waiters that are dead or slow. All functions are pure. docs/locks.md explains why this is
// sufficient, and package lock acts on the decisions.
//
// line.go decides whose turn it is, and pace.go decides how often a waiter looks.
package fair

import (
	"math"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Line is a queue as one look found it, from the point of view of one of its waiters or of a newcomer.
type Line struct {
	Own     table.Ticket   // the waiter's ticket; a newcomer has no ticket, hence no nonce, and comes last
	Tickets []table.Ticket // the first tickets, or all of them
	End     string         // the key up to which all tickets were read, or "" if there are no more
	At      time.Time      // the time of the look, by Spanner's clock
}

// Has reports whether the waiter's own ticket was read.
func (l Line) Has() bool {
	for _, t := range l.Tickets {
		if t.Same(l.Own) {
			return true
		}
	}
	return false
}

// Beyond reports whether there may be tickets before the waiter's own that were not read.
func (l Line) Beyond() bool {
	return l.End != "" && (l.Own.Nonce == "" || l.Own.Row() > l.End)
}

// Before returns the tickets whose turn comes before the waiter's own.
func (l Line) Before() (before []table.Ticket) {
	for _, t := range l.Tickets {
		if t.Nonce != l.Own.Nonce && l.counts(t) && l.first(t) {
			before = append(before, t)
		}
	}
	return before
}

// Place returns the number of waiters whose turn comes first, or MostTickets if some of the tickets before the waiter's
// own may not have been read.
func (l Line) Place() int {
	if l.Beyond() {
		return table.MostTickets
	}
	return len(l.Before())
}

// counts reports whether other waiters wait for a ticket. A set's ticket counts only if the set is first in all its
// queues and has recently recorded this in the ticket. Otherwise a lock could be idle because of a set that can't
// continue, and sets could wait for each other in a cycle.
func (l Line) counts(t table.Ticket) bool { return !t.Set || l.isReady(t) }

func (l Line) isReady(t table.Ticket) bool { return t.Ready && l.readyFor(t) > 0 }

// readyFor returns the remaining time for which no other waiter may pass the ticket of a set.
func (l Line) readyFor(t table.Ticket) time.Duration { return t.Beat.Add(4 * t.Grace).Sub(l.At) }

// first reports whether the turn of a ticket comes before the waiter's own. If two waiters want to do work for
// different keys, the smaller key is first, because its work could no longer run after that of the larger key.
func (l Line) first(t table.Ticket) bool {
	switch {
	case l.Own.Key != "" && t.Key != "" && table.Comparable(l.Own.Key, t.Key) && l.Own.Key != t.Key:
		return t.Key < l.Own.Key
	case l.Own.Nonce == "":
		return true
	}
	return t.Compare(l.Own) < 0
}

// Passed returns the tickets that the waiter's claim deletes once the waiter does not have to wait any longer. They are
// the tickets before its own, except those of sets, and the tickets of all sets that have died.
func (l Line) Passed() (passed []table.Ticket) {
	for _, t := range l.Before() {
		if !t.Set {
			passed = append(passed, t)
		}
	}
	for _, t := range l.Tickets {
		if t.Set && !t.Same(l.Own) && l.At.Sub(t.Beat) > setDies {
			passed = append(passed, t)
		}
	}
	return passed
}

// A set renews its tickets, whether it is ready or not. If a set dies before it is ready, no waiter waits for it, so no
// waiter passes its tickets either. They must expire, because 32 such tickets would hide the rest of the queue forever.
const (
	SetRenews = 20 * time.Second
	setDies   = time.Minute
)

// Wait returns how long the waiter must still leave a lock to the waiters before it, given how long the lock has been
// free. If the result is not positive, the waiter can claim the lock. The head of the queue does not wait. Any other
// waiter waits for the longest grace of those before it, multiplied by a factor that grows with their number. The wait
// is far less than the sum of their graces, because if many waiters have died, the remaining ones must not wait for
// each of them. A waiter beyond the tickets that were read does not know its place, so it also waits for a random time.
func (l Line) Wait(free time.Duration, random func(time.Duration) time.Duration) time.Duration {
	before := l.Before()
	place := l.Place()
	if place == 0 {
		return 0
	}
	grace := longest(before)
	wait := time.Duration(float64(grace)*math.Log2(1+float64(place))) - free
	if l.Beyond() {
		wait += random(grace)
	}
	for _, t := range before {
		if t.Set {
			wait = max(wait, min(l.readyFor(t), l.longestFor(t)-free))
		}
	}
	return wait
}

// longestFor returns how long a free lock is left to a ready set. The time increases with the time that the set has
// already waited, because the set may be waiting for another lock whose holder keeps it for long. It is limited to one
// minute. That holder may be waiting for the free lock, and without a limit both could wait forever.
func (l Line) longestFor(t table.Ticket) time.Duration {
	return min(max(l.At.Sub(t.Time.Time())/16, table.MaxGrace), time.Minute)
}

// longest returns the longest grace of the tickets.
func longest(before []table.Ticket) time.Duration {
	grace := time.Millisecond
	for _, t := range before {
		grace = max(grace, t.Grace)
	}
	return grace
}

// Slot chooses a free slot of a semaphore for the waiter. The argument contains how long each free slot has been free,
// in an order on which all waiters agree. Each waiter before this one is expected to take one slot. For every grace
// period that a slot has remained free, one of those waiters is considered dead. Slot returns the slot that the waiter
// can claim, and the number of waiters before it that it passes. If the waiter has to wait, Slot reports false and
// returns the time until its next look.
func (l Line) Slot(free []time.Duration) (slot, passed int, wait time.Duration, ok bool) {
	if len(free) == 0 {
		return 0, 0, 0, false
	}
	place := l.Place()
	if place == 0 {
		return 0, 0, 0, true
	}
	grace := longest(l.Before())
	wait = grace
	lost := 0
	for _, f := range free {
		lost += int(max(f, 0) / grace)
		wait = min(wait, grace-max(f, 0)%grace)
	}
	if place < len(free)+lost {
		return place % len(free), min(max(place-len(free)+1, 0), len(l.Before())), 0, true
	}
	return 0, 0, wait, false
}
