package share

import "slices"

// Entries are the partitions of an inventory.
type Entries []*Entry

// Works reports whether work of this term has not returned. If revoked is true, it considers only work that was revoked.
func (all Entries) Works(revoked bool) bool {
	return slices.ContainsFunc(all, func(e *Entry) bool {
		return e.Busy != nil && !e.Busy.earlier && (e.State == Revoking || !revoked)
	})
}

// Busy returns the partitions whose work has not returned, in any term.
func (all Entries) Busy() (busy []*Entry) {
	for _, e := range all {
		if e.Busy != nil {
			busy = append(busy, e)
		}
	}
	return busy
}

// Holds returns the number of partitions that the member owns, including those that it no longer acts on, and the
// number of those that it acts on.
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

// Settled reports whether the member owns exactly the partitions that the plan assigns to it and the program has not
// paused.
func (all Entries) Settled() bool {
	return !slices.ContainsFunc(all, func(e *Entry) bool { return !e.done() && !(e.State == Held && e.Target) })
}
