package group

import (
	"cmp"
	"slices"

	"github.com/spindle-lock/spindle/internal/table"
)

// planned are the slots, in their order, of the members with that list among which its partitions are spread, and
// whether a newer list is there. A member is counted once its heartbeats show that it has lived for a lease, or if all
// are as young as it is: one that ends whenever it starts takes nothing from anybody, not even once it has ended.
func planned(r table.Roster, digest string) (slots []int, elder bool) {
	there := map[int]table.Observation{}
	oldest := table.TokenAt(r.At)
	for name, o := range r.Members {
		if part, _ := table.PartOf(name); present(o) {
			there[part.Slot] = o
			oldest = min(oldest, since(o))
		}
	}
	first := map[string]table.Token{} // of each list, since when it is there
	for slot, o := range there {
		began, list := since(o), o.Promise.Plan
		if o.Heartbeat.Sub(began.Time()) < o.Promise.Lease && began.Time().Sub(oldest.Time()) >= o.Promise.Lease {
			continue
		}
		first[list] = min(cmp.Or(first[list], began), began)
		if list == digest {
			slots = append(slots, slot)
		}
	}
	slices.Sort(slots)
	for list, began := range first {
		own := first[digest]
		elder = elder || began > own || began == own && list > digest
	}
	return slots, elder
}

// lives reports whether a row is that of a member which was heard from within its lease.
func lives(o table.Observation) bool {
	return o.Confirmed() && o.Promise != nil && o.Promise.Plan != "" && o.At.Sub(o.Heartbeat) < o.Promise.Lease
}

// present reports whether a member lives, and is not about to leave.
func present(o table.Observation) bool { return lives(o) && !o.Leaving() }

// since is when a member joined: its token, or that of the term that it reclaimed.
func since(o table.Observation) table.Token { return cmp.Or(o.Promise.Since, o.Token) }
