// Package fair decides when one of those that wait for a lock may try to claim it: first come, first served, by the tickets
// that they have in the table, with a way past those that are dead or slow. It is pure: docs/locks.md says why this is
// enough, and package lock acts by it.
//
// line.go is whose turn it is, and pace.go how often one that waits looks.
package fair

import (
	"math"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Line is a queue as one look found it, for one that waits in it or has just come.
type Line struct {
	Own     table.Ticket   // without a nonce: it has none, and comes last
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

// Before are the tickets of those whose turn comes first.
func (l Line) Before() (before []table.Ticket) {
	for _, t := range l.Tickets {
		if t.Nonce != l.Own.Nonce && l.counts(t) && l.first(t) {
			before = append(before, t)
		}
	}
	return before
}

// Place is how many have their turn first, as far as is known.
func (l Line) Place() int {
	if l.Beyond() {
		return table.MostTickets
	}
	return len(l.Before())
}

// counts reports whether a ticket is waited for. That of a set is not before the set is first in all its queues, and has said
// so lately: a lock must not be idle for a set that can't go on, and sets must not wait in a circle.
func (l Line) counts(t table.Ticket) bool { return !t.Set || l.isReady(t) }

func (l Line) isReady(t table.Ticket) bool { return t.Ready && l.readyFor(t) > 0 }

// readyFor is how long nobody passes the ticket of a set yet.
func (l Line) readyFor(t table.Ticket) time.Duration { return t.Beat.Add(4 * t.Grace).Sub(l.At) }

// first reports whether the turn of a ticket comes before its own. Of two that wait to do work for a key, the smaller key is
// first: after the larger one it would not be run any more.
func (l Line) first(t table.Ticket) bool {
	switch {
	case l.Own.Key != "" && t.Key != "" && table.Comparable(l.Own.Key, t.Key) && l.Own.Key != t.Key:
		return t.Key < l.Own.Key
	case l.Own.Nonce == "":
		return true
	}
	return t.Compare(l.Own) < 0
}

// Passed are the tickets that a claim deletes, if it need not wait: those before its own, but for sets, which keep their places,
// unless they have died.
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

// A set renews its tickets, ready or not. Nobody waits for those of sets that have died before they were ready, so nobody
// passes them: 32 would hide the queue for ever.
const (
	SetRenews = 20 * time.Second
	setDies   = time.Minute
)

// Wait is how long it has to leave a lock to those before it that has been free for so long: not at all, if not positive. Who
// is at the head does not wait. Behind others it waits for the longest grace that one of them asks for, and for longer the
// more they are, but far less than for one after the other: when many have died, those who live are not to wait for each.
// Beyond the tickets that were read nobody knows its place: chance decides among those.
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

// longestFor is how long a free lock is left to a set that is ready: for longer the longer the set has waited, as the holder that
// it waits for may hold for long, but a minute at most. That holder may wait for the free lock: without a bound both would wait
// for ever.
func (l Line) longestFor(t table.Ticket) time.Duration {
	return min(max(l.At.Sub(t.Time.Time())/16, table.MaxGrace), time.Minute)
}

// longest is the longest grace, or that of a ticket that says none.
func longest(before []table.Ticket) time.Duration {
	grace := time.Millisecond
	for _, t := range before {
		grace = max(grace, t.Grace)
	}
	return grace
}

// Slot is for a semaphore with slots that have been free for so long, in an order on which all agree. Those in front each take
// one, and another is lost for each grace that one has been free. It returns which one is its own, how many of those in front
// it passes, or how long it has to wait before it looks again.
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
