package share

import (
	"cmp"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Entries are the partitions of an inventory.
type Entries []*Entry

// Works reports whether any work of this term has not returned, except for work that was let go. If revoked is true, it
// considers only work that was revoked.
func (all Entries) Works(revoked bool) bool {
	return slices.ContainsFunc(all, func(e *Entry) bool {
		return e.Busy != nil && e.Busy.Ended == 0 && !e.Busy.Let && (e.State == Revoking || !revoked)
	})
}

// Busy returns the partitions whose work, of this or an earlier term, has not returned.
func (all Entries) Busy() (busy []*Entry) {
	for _, e := range all {
		if e.Busy != nil {
			busy = append(busy, e)
		}
	}
	return busy
}

// Overdue returns the partitions with overdue work, beginning with the work that has been overdue longest. Work is
// overdue if it has not returned within a lease after it was revoked.
func (all Entries) Overdue(now elect.Instant, lease time.Duration) (late Entries) {
	for _, e := range all.Busy() {
		if since := e.Busy.Since; since != (elect.Instant{}) && now.Ran(since) >= lease {
			late = append(late, e)
		}
	}
	slices.SortStableFunc(late, func(a, b *Entry) int { return cmp.Compare(now.Ran(b.Busy.Since), now.Ran(a.Busy.Since)) })
	return late
}

// Holds returns two numbers: how many partitions the member owns, and how many it is acting on. The first number
// includes partitions that are revoked but not released yet.
func (all Entries) Holds() (owned, acted int) {
	for _, e := range all {
		if e.Assigned != nil {
			owned++
		}
		if e.State == Held {
			acted++
		}
	}
	return owned, acted
}

// Settled reports whether the member owns exactly the partitions that the plan assigns to it and that the program has
// not paused.
func (all Entries) Settled() bool {
	return !slices.ContainsFunc(all, func(e *Entry) bool { return !e.done() && !(e.State == Held && e.Wanted()) })
}
