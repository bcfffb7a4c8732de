// Package plan determines who is in a group and which partitions each member should own. It encodes this plan as text
// that members can publish. It never waits or reads a clock. docs/groups.md explains the plan.
//
// Each plan is computed from the previous one, so that as few partitions as possible move. A plan computed only from
// the names and slots would also move partitions that could stay where they are.
package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	none      = -1      // the index if there is no member
	maxLists  = 6       // six lists of the maximum length fit in one cell of Spanner
	maxSlot   = 9999    // slots have four digits
	maxWeight = 1 << 20 // a quota times a weight must fit in an int64
)

// Member is a member to which a plan can assign partitions.
type Member struct {
	Slot   int    // at least 0; each slot has one member
	Token  int64  // the token of the member's term
	List   string // the digest of the member's list
	Weight int    // from 1 to 1<<20; other values count as the nearest of these
	Trial  bool   // limits the member to one partition, unless all eligible members are on trial
	ID     string // in UTF-8; "" unless the member's identity is kept after its eviction
	Keep   time.Duration
}

// Plan is an assignment of partitions to members. It is immutable.
type Plan struct {
	members []Member         // ordered by slot
	lists   []string         // the members' lists, ascending; each is a bit in entry.lists
	entries []entry          // ordered by hash
	evicted map[string]int64 // the identities that are kept, and until when, in milliseconds since 1970

	whole  string // the digest of the list whose names are exactly the entries, if all members have that list
	opaque bool   // the entries have no hashes, because this member does not have the list with the digest whole
}

// An entry is a partition.
type entry struct {
	hash   uint64
	lists  uint16 // a bit for each list in the plan that contains the partition
	owner  int32  // the index of the member that has the partition, or none
	former string // the identity of the evicted member that had the partition, if it is kept
}

// Of returns a plan that assigns each owned partition to its current owner. If a group has no usable plan, its next
// plan is based on this one. The function owner returns the slot of the member that owns partition i according to that
// partition's rows, or false if no member owns it.
func Of(l List, members []Member, owner func(i int) (slot int, ok bool)) *Plan {
	p := counting(members)
	owners := slices.Repeat([]int{none}, len(l.hashes))
	for i, at := range l.at {
		if slot, ok := owner(i); ok && owners[at] == none {
			owners[at] = p.index(slot)
		}
	}
	for at, i := range owners {
		if i == none {
			continue
		}
		if bit := p.bit(p.members[i].List); bit != 0 { // the member has the partition, so its list contains it
			p.entries = append(p.entries, entry{hash: l.hashes[at], lists: p.bit(l.digest) | bit, owner: int32(i)})
		}
	}
	return p
}

// counting returns a plan of these members without any entries.
func counting(members []Member) *Plan {
	p := &Plan{members: slices.Clone(members), evicted: map[string]int64{}}
	slices.SortFunc(p.members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(b.Token, a.Token))
	})
	p.members = slices.CompactFunc(p.members, func(a, b Member) bool { return a.Slot == b.Slot })
	for i := range p.members {
		m := &p.members[i]
		m.Weight = min(max(m.Weight, 1), maxWeight)
	}
	p.lists = carried(p.members)
	return p
}

// carried returns the lists that a plan includes. If the members have more than maxLists lists, carried leaves out the
// lists with the fewest members. Members with those lists are assigned nothing.
func carried(members []Member) []string {
	count := map[string]int{}
	for _, m := range members {
		count[m.List]++
	}
	lists := slices.Collect(maps.Keys(count))
	slices.SortFunc(lists, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	lists = lists[:min(len(lists), maxLists)]
	slices.Sort(lists)
	return lists
}

// bit returns the bit of a list in entry.lists, or 0.
func (p *Plan) bit(list string) uint16 {
	if i, ok := slices.BinarySearch(p.lists, list); ok {
		return 1 << i
	}
	return 0
}

// index returns the index of the member in the slot, or none.
func (p *Plan) index(slot int) int {
	i, ok := slices.BinarySearchFunc(p.members, slot, func(m Member, slot int) int { return cmp.Compare(m.Slot, slot) })
	if !ok {
		return none
	}
	return i
}

// Members returns the plan's members, ordered by slot.
func (p *Plan) Members() []Member {
	if p == nil {
		return nil
	}
	return slices.Clone(p.members)
}

// Same reports whether two plans have the same members and assign the same partitions to them. It ignores a former
// owner that only one of the plans records, because a plan remembers former owners only for a limited time.
func (p *Plan) Same(q *Plan) bool {
	if p == nil || q == nil {
		return p == q
	}
	return slices.Equal(p.members, q.members) &&
		slices.EqualFunc(p.entries, q.entries, func(a, b entry) bool {
			return a.hash == b.hash && a.lists == b.lists && a.owner == b.owner &&
				(a.former == "" || b.former == "" || a.former == b.former && p.evicted[a.former] == q.evicted[b.former])
		})
}

// Assigned returns the indexes of the names in the list that are assigned to the slot, in ascending order.
func (p *Plan) Assigned(l List, slot int) []int {
	if p == nil || p.opaque {
		return nil
	}
	member := p.index(slot)
	if member == none {
		return nil
	}
	var names []int
	for i, at := range l.at {
		j, has := slices.BinarySearchFunc(p.entries, l.hashes[at], func(e entry, hash uint64) int { return cmp.Compare(e.hash, hash) })
		if has && int(p.entries[j].owner) == member {
			names = append(names, i)
		}
	}
	return names
}
