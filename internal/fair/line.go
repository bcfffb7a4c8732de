// Package fair decides when a waiter may try to claim a lock. Waiters take turns in the order of their tickets in the
// table, but a waiter can overtake others that are dead or too slow. All functions are pure, and package wait acts on
// their results. The chapter on queues in docs/locks.md explains the rules.
//
// line.go decides which waiter is next, and pace.go decides how often a waiter polls.
package fair

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Line is a queue as one poll found it, from the point of view of one of its waiters or of a newcomer.
type Line struct {
	Own     table.Ticket   // the waiter's ticket as it was read; a newcomer has no ticket and no nonce, and comes last among waiters of its priority
	Tickets []table.Ticket // the first tickets, or all of them
	End     string         // the key up to which all tickets were read, or "" if there are no more
	At      time.Time      // the time of the poll, by Spanner's clock
}

// Has reports whether the waiter's own ticket was read.
func (l Line) Has() bool { return slices.ContainsFunc(l.Tickets, l.Own.Same) }

// Beyond reports whether there may be tickets ahead of the waiter's own that were not read.
func (l Line) Beyond() bool {
	return l.End != "" && (l.Own.Nonce == "" || l.Own.Row() > l.End)
}

// Before returns the tickets whose turn comes before the waiter's own. A waiter whose own ticket has expired comes last
// until it has renewed the ticket, because the other waiters do not count an expired ticket.
func (l Line) Before() []table.Ticket {
	all := without(l.Tickets, func(t table.Ticket) bool { return t.Nonce == l.Own.Nonce || !l.counts(t) })
	if l.Own.Expired(l.At) {
		return all
	}
	own := l.Own
	if own.Nonce == "" {
		own.Time = table.TurnFor(table.TokenAt(l.At), own.Rank)
	}
	all = append(all, own)
	place := behind(own, all)
	return without(all, func(t table.Ticket) bool {
		return cmp.Or(behind(t, all).Compare(place), cmp.Compare(t.Key, own.Key), t.Compare(own)) >= 0
	})
}

func without(all []table.Ticket, drop func(table.Ticket) bool) []table.Ticket {
	return slices.DeleteFunc(slices.Clone(all), drop)
}

// behind returns the ticket that determines t's turn: t or, if it comes later, the last ticket with a smaller key. Work
// for a smaller key goes first, because it must not run after the larger key is done. The waiter with the larger key
// therefore moves back in the queue. No waiter moves forward, so a waiter without a key is not overtaken.
func behind(t table.Ticket, all []table.Ticket) table.Ticket {
	last := t
	for _, other := range all {
		if other.Key != "" && other.Key < t.Key && last.Compare(other) < 0 && table.Comparable(other.Key, t.Key) {
			last = other
		}
	}
	return last
}

// Place returns the number of waiters ahead of this one. It returns MostTickets if some of the tickets ahead may not
// have been read.
func (l Line) Place() int {
	if l.Beyond() {
		return table.MostTickets
	}
	return len(l.Before())
}

// counts reports whether the waiters behind a ticket have to let it go first. A ticket that has expired does not count.
// A set, which waits for several locks at once, is ready while it is first in all of its queues and has recently
// written this into its tickets. Its tickets count only while it is ready. If they always counted, a lock could stay
// idle for a set that can't proceed, and sets could wait for each other in a cycle.
func (l Line) counts(t table.Ticket) bool { return !t.Expired(l.At) && (!t.Set || l.isReady(t)) }

func (l Line) isReady(t table.Ticket) bool { return t.Ready && l.readyFor(t) > 0 }

// readyFor returns how much longer the ticket of a ready set counts, unless the set renews it.
func (l Line) readyFor(t table.Ticket) time.Duration { return t.Beat.Add(2 * t.Grace).Sub(l.At) }

// Passed returns the tickets of other waiters that the waiter deletes when it claims the lock. These are all expired
// tickets, and those tickets ahead of its own that do not belong to sets.
func (l Line) Passed() []table.Ticket {
	return append(without(l.Before(), func(t table.Ticket) bool { return t.Set }), l.Expired()...)
}

// Behind returns the tickets of the other waiters that stay in the queue when the waiter has claimed the lock.
func (l Line) Behind() []table.Ticket {
	passed := l.Passed()
	return without(l.Tickets, func(t table.Ticket) bool {
		return slices.ContainsFunc(passed, t.Same) || t.Nonce == l.Own.Nonce
	})
}

// Expired returns the expired tickets of other waiters, wherever they are in the queue. Waiters delete them. Otherwise,
// 32 expired tickets could hide the rest of a queue, because only the first 32 tickets are sure to be read.
func (l Line) Expired() []table.Ticket {
	return without(l.Tickets, func(t table.Ticket) bool { return t.Same(l.Own) || !t.Expired(l.At) })
}

// A Gap is the time since a lock was last held.
type Gap struct {
	Lasts time.Duration // so far
	After time.Duration // how long the lock was held before the gap, at most
}

// Wait returns how much longer the waiter must wait before it may claim a free lock. If the result is zero or negative,
// the waiter may claim the lock now.
//
// The head of the queue does not wait. Any other waiter gives the n waiters ahead of it time to claim the lock. This
// time is log2(1+n) times the longest grace period among them, and possibly more if a ready set is among them. The sum
// of their grace periods would be too long if many of them had died. If some tickets ahead may not have been read, n is
// MostTickets, and the waiter waits for an additional random time.
func (l Line) Wait(gap Gap, random func(time.Duration) time.Duration) time.Duration {
	before, free := l.Before(), gap.Lasts
	place := l.Place()
	if place == 0 {
		return 0
	}
	wait := After(before, place, gap.After) - free
	if l.Beyond() {
		wait += random(longest(before, gap.After))
	}
	for _, t := range before {
		if t.Set {
			wait = max(wait, min(l.readyFor(t), l.longestFor(t)-free))
		}
	}
	return wait
}

// After returns how long a waiter leaves a free lock to the waiters ahead of it. The argument place is the number of
// those waiters, and held is the longest time for which the lock may have been held.
func After(before []table.Ticket, place int, held time.Duration) time.Duration {
	return time.Duration(float64(longest(before, held)) * math.Log2(1+float64(place)))
}

// AfterSlots is like After, for a semaphore: see Slot.
func AfterSlots(before []table.Ticket) time.Duration {
	return time.Duration(len(before)) * longest(before, math.MaxInt64)
}

// longestFor returns the longest time for which other waiters leave a free lock to a ready set. The set may still have
// to wait for another of its locks. The longer the set has already waited, the longer the free lock is left to it, up
// to one minute. Without this limit, there could be a deadlock, because the holder of the other lock may itself be
// waiting for the free lock.
func (l Line) longestFor(t table.Ticket) time.Duration {
	return min(max(l.At.Sub(t.Since())/16, table.MaxGrace), time.Minute)
}

// longest returns the longest grace period of the tickets. The argument held is the longest time for which the lock may
// have been held.
func longest(before []table.Ticket, held time.Duration) time.Duration {
	grace := time.Millisecond
	for _, t := range before {
		grace = max(grace, graceOf(t, held))
	}
	return grace
}

// Slot chooses a free slot of a semaphore for the waiter. The argument free says how long each free slot has been free.
// All waiters must list the slots in the same order. Each waiter ahead of this one is expected to take one slot.
// However, for every grace period that a slot stays free, Slot assumes that one of those waiters has died.
//
// If there is a slot for the waiter, Slot returns the slot's index in free, and the number of waiters that this waiter
// overtakes. Otherwise, it reports false and returns how long the waiter should pause before it polls again. This pause
// is zero if no slot is free.
func (l Line) Slot(free []time.Duration) (slot, passed int, wait time.Duration, ok bool) {
	if len(free) == 0 {
		return 0, 0, 0, false
	}
	place := l.Place()
	if place == 0 {
		return 0, 0, 0, true
	}
	grace := longest(l.Before(), math.MaxInt64) // the tickets do not say which slots their waiters saw
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
