package share

import (
	"cmp"
	"slices"

	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// Query adds to q what the next poll must read about partitions. If whole is true, the poll also checks the partitions
// that the member holds.
func (f Facts) Query(q table.GroupQuery, whole bool) table.GroupQuery {
	q.Members = q.Members || q.Body || q.All
	for _, e := range f.Inventory.All {
		switch {
		case e.State == Held && whole:
			q.Leases = append(q.Leases, e.Ref())
		case e.State == Unresolved && q.Members:
			q.WithLeases = append(q.WithLeases, e.Lock)
		}
	}
	if !q.Members {
		return q
	}
	window, _ := f.window()
	for _, e := range window {
		q.WithLeases = append(q.WithLeases, e.Lock)
	}
	return q
}

// Wanted returns the partitions to claim, sorted by name.
func (f Facts) Wanted() (wanted []*Entry) {
	if f.Leaving || !f.Planned {
		return nil
	}
	for _, e := range f.Inventory.All {
		if e.Wanted() && e.State == Free && e.Busy == nil {
			wanted = append(wanted, e)
		}
	}
	return wanted
}

// window returns the wanted partitions that the next poll reads, and whether these are all the wanted partitions. It
// returns all of them if there are at most four times as many as one commit can claim. It also does so if every
// partition in the last window could be claimed, as when a group starts.
//
// Otherwise, window returns the first partitions by name, because members release partitions in this order. It adds a
// different section of the rest for each poll, because work on the first partitions may hang.
func (f Facts) window() (window []*Entry, all bool) {
	wanted, n := f.Wanted(), 2*f.Batch
	if len(wanted) <= 2*n || f.Inventory.open {
		return wanted, true
	}
	return slices.Concat(wanted[:n], Section(wanted[n:], f.Inventory.turn, n)), false
}

// Section returns up to n elements, as if all elements were in a circle, beginning with the one at the given position.
func Section[T any](all []T, from, n int) []T {
	from %= len(all)
	return slices.Concat(all[from:], all[:from])[:min(n, len(all))]
}

// Learn updates the history of the partitions.
func (v *Inventory) Learn(s table.GroupSnapshot, m *plan.Memory) {
	for lock, o := range s.Partitions {
		e := v.byLock[lock]
		if e == nil {
			continue // in another member's list
		}
		assumed := m.Lease
		for _, with := range plan.Named(o) {
			assumed = max(assumed, m.Leases[with])
		}
		if o.LeaseRecord != nil {
			assumed = max(assumed, o.LeaseRecord.Lease)
		}
		e.history.learn(o, assumed)
	}
}

// Lost returns the partitions that the member acts on although a poll has shown that their lease rows are missing. Such
// rows were deleted by hand.
func (v *Inventory) Lost(s table.GroupSnapshot) (lost []*Entry) {
	for _, e := range v.All {
		if e.State == Held {
			if exists, read := s.LeaseExists[e.Ref()]; read && !exists {
				lost = append(lost, e)
			}
		}
	}
	return lost
}

// PlainLocks returns the plain locks that have a partition's name and are held, sorted by name. It returns each term of
// such a lock only once.
func (v *Inventory) PlainLocks(s table.GroupSnapshot) (plain []table.Observation) {
	for lock, o := range s.Partitions {
		e := v.byLock[lock]
		if e != nil && o.Confirmed() && o.LeaseRecord != nil && o.LeaseRecord.With == "" && o.At.Sub(o.Heartbeat) < o.LeaseRecord.Lease && e.history.plain != o.Token {
			e.history.plain, plain = o.Token, append(plain, o)
		}
	}
	slices.SortFunc(plain, func(a, b table.Observation) int { return cmp.Compare(a.Name, b.Name) })
	return plain
}
