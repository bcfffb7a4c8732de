// Package fair decides when a waiter may try to claim a lock: first come, first served, by the tickets in the table,
// with a way past waiters that are dead or slow. It is pure: docs/locks.md says why this is enough, and package lock
// acts by it.
//
// line.go decides whose turn it is, and pace.go how often a waiter looks.
package fair

import (
	"math"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Line is a queue as one look found it, for one of its waiters or a newcomer.
type Line struct {
	Own     table.Ticket   // without a nonce: it has no ticket, and comes last
	Tickets []table.Ticket // the first ones, or all
	End     string         // the row up to which all were read; "": all
	At      time.Time      // of the look, by Spanner's clock
}

// Has reports whether its own ticket was read.
func (l Line) Has() bool {
	for _, t := range l.Tickets {
		if t.Same(l.Own) {
			return true
		}
	}
	return false
}

// Beyond reports whether more tickets may come before its own than were read.
func (l Line) Beyond() bool {
	return l.End != "" && (l.Own.Nonce == "" || l.Own.Row() > l.End)
}

// Before returns the tickets whose turn comes first.
func (l Line) Before() (before []table.Ticket) {
	for _, t := range l.Tickets {
		if t.Nonce != l.Own.Nonce && l.counts(t) && l.first(t) {
			before = append(before, t)
		}
	}
	return before
}

// Place returns how many have their turn first, as far as is known.
func (l Line) Place() int {
	if l.Beyond() {
		return table.MostTickets
	}
	return len(l.Before())
}

// counts reports whether others wait for a ticket. A set's ticket counts only once the set is first in all its queues,
// and has lately said so: a lock must not be idle for a set that can't continue, and sets must not wait in a circle.
func (l Line) counts(t table.Ticket) bool { return !t.Set || l.isReady(t) }

func (l Line) isReady(t table.Ticket) bool { return t.Ready && l.readyFor(t) > 0 }

// readyFor returns how long nobody may pass the ticket of a set yet.
func (l Line) readyFor(t table.Ticket) time.Duration { return t.Beat.Add(4 * t.Grace).Sub(l.At) }

// first reports whether the turn of a ticket comes before its own. Of two that wait to do work for a key, the smaller
// key is first: after the larger one it would not run any more.
func (l Line) first(t table.Ticket) bool {
	switch {
	case l.Own.Key != "" && t.Key != "" && table.Comparable(l.Own.Key, t.Key) && l.Own.Key != t.Key:
		return t.Key < l.Own.Key
	case l.Own.Nonce == "":
		return true
	}
	return t.Compare(l.Own) < 0
}

// Passed returns the tickets that a claim deletes, if it need not wait: those before its own, except for live sets,
// which keep their places.
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

// A set renews its tickets, ready or not. Nobody waits for a set that died before it was ready, so nobody passes its
// ticket: 32 such tickets would hide the queue forever.
const (
	SetRenews = 20 * time.Second
	setDies   = time.Minute
)

// Wait returns how long it must leave a lock, which has been free for that long, to those before it; it need not if
// that is not positive. The head of the queue does not wait. Behind others it waits for the longest grace that one of
// them asks for, and longer the more they are, but far less than the sum: when many have died, the living must not wait
// for each. Beyond the tickets that were read nobody knows its place: chance decides among those.
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

// longestFor returns how long a free lock is left to a ready set: longer the longer the set has waited, because the
// holder that it waits for may hold for long, but a minute at most. That holder may wait for the free lock: without a
// bound both would wait forever.
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

// Slot is for a semaphore. Its free slots have been free for so long, in an order on which all agree. Each waiter in
// front takes one, and one more is lost for each grace that a slot has been free. Slot returns which slot is its own
// and how many waiters in front it passes, or how long it has to wait before it looks again.
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
