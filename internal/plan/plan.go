// Package plan computes and encodes which member of a group has which partitions. Members publish it.
//
// If a plan were a pure function of names and slots, holes in the slots would move many partitions that could stay. So
// a plan follows from the plan before it: each member keeps what it has up to its quota, and the rest is assigned in a
// fixed order. That moves the fewest partitions, if all members begin with the same plan. So one of them publishes it,
// and until then all of them compute the same.
//
// Members may have different lists of partitions. One plan has the union: members add the names of their own list, and
// carry the hashes of the others.
package plan

import (
	"cmp"
	"slices"
	"time"
)

const (
	none      = -1      // the index of no member, or of no evicted one
	maxLists  = 6       // six of the longest lists fit in one cell of Spanner
	maxSlot   = 9999    // of four digits
	maxWeight = 1 << 20 // a quota times a weight must fit in an int64
)

// Member is a member that partitions are assigned to.
type Member struct {
	Slot   int    // at least 0; one member in each
	Token  int64  // of its term
	List   string // the digest of its list
	Weight int    // from 1 to 1<<20; others count as the nearest
	Trial  bool   // at most one partition is assigned to it
	ID     string // in UTF-8; "" unless its identity is kept after it is evicted
	Keep   time.Duration
}

// Plan says which member has which partition. It never changes.
type Plan struct {
	members []Member // in the order of slots
	lists   []string // the members' lists, ascending: the bits of entry.lists
	entries []entry  // in the order of hashes
	evicted []evicted

	whole  string // the list whose names are the entries, if that is certain and the members have no other list
	opaque bool   // the entries are those of the list whole, which is not known here: they have no hashes
}

// An entry is a partition.
type entry struct {
	hash   uint64
	lists  uint16 // a bit for each list of the plan that has it
	owner  int32  // index of the member, or none
	former int32  // index of the evicted member that had it, or none
}

// evicted is a member whose identity is kept.
type evicted struct {
	ID    string `json:"id"`
	Until int64  `json:"u"` // milliseconds since 1970
}

// Of returns the plan that the rows of partitions show: the first plan of a group follows from it. A name's owner is
// the slot of a member, if there is one.
func Of(l List, members []Member, owner func(i int) (slot int, ok bool)) *Plan {
	p := counting(members)
	owners := slices.Repeat([]int{none}, len(l.hashes))
	for i, at := range l.at {
		if slot, ok := owner(i); ok && owners[at] == none {
			owners[at] = p.index(slot)
		}
	}
	for at, h := range l.hashes {
		e := entry{hash: h, lists: p.bit(l.digest), owner: none, former: none}
		if i := owners[at]; i != none && p.bit(p.members[i].List) != 0 {
			e.owner = int32(i)
			e.lists |= p.bit(p.members[i].List) // it has the partition, so its list does
		}
		if e.lists != 0 {
			p.entries = append(p.entries, e)
		}
	}
	p.whole = p.only(l)
	return p
}

// counting returns a plan of these members, without any entry.
func counting(members []Member) *Plan {
	p := &Plan{members: slices.Clone(members)}
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

// carried returns the lists whose names a plan has. If there are more than fit, the lists of the fewest members are
// left out, and nothing is assigned to these members.
func carried(members []Member) []string {
	count := map[string]int{}
	for _, m := range members {
		count[m.List]++
	}
	lists := make([]string, 0, len(count))
	for list := range count {
		lists = append(lists, list)
	}
	slices.SortFunc(lists, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	lists = lists[:min(len(lists), maxLists)]
	slices.Sort(lists)
	return lists
}

// only returns the digest of the list if all members have it.
func (p *Plan) only(l List) string {
	if len(p.lists) == 1 && p.lists[0] == l.digest {
		return l.digest
	}
	return ""
}

// bit returns the bit of a list in entry.lists, or 0.
func (p *Plan) bit(list string) uint16 {
	if i, ok := slices.BinarySearch(p.lists, list); ok {
		return 1 << i
	}
	return 0
}

// index returns the index of the member in a slot, or none.
func (p *Plan) index(slot int) int {
	i, ok := slices.BinarySearchFunc(p.members, slot, func(m Member, slot int) int { return cmp.Compare(m.Slot, slot) })
	if !ok {
		return none
	}
	return i
}

// Members returns the members that partitions are assigned to, in the order of their slots.
func (p *Plan) Members() []Member {
	if p == nil {
		return nil
	}
	return slices.Clone(p.members)
}

// Same reports whether two plans have the same members, and assign the same partitions to them. Former owners in only
// one of the plans make no difference: with the same members, their time has merely passed in between.
func (p *Plan) Same(q *Plan) bool {
	if p == nil || q == nil {
		return p == q
	}
	return slices.Equal(p.members, q.members) &&
		slices.EqualFunc(p.entries, q.entries, func(a, b entry) bool {
			return a.hash == b.hash && a.lists == b.lists && a.owner == b.owner &&
				(a.former == none || b.former == none || p.evicted[a.former] == q.evicted[b.former])
		})
}

// Assigned returns the indexes of those names of the list that are assigned to the slot, ascending.
func (p *Plan) Assigned(l List, slot int) []int {
	if p == nil || p.opaque {
		return nil
	}
	member := p.index(slot)
	if member == none {
		return nil
	}
	has := make([]bool, len(l.hashes))
	at := 0
	for _, e := range p.entries {
		for at < len(l.hashes) && l.hashes[at] < e.hash {
			at++
		}
		if at < len(l.hashes) && l.hashes[at] == e.hash {
			has[at] = int(e.owner) == member
		}
	}
	var names []int
	for i, at := range l.at {
		if has[at] {
			names = append(names, i)
		}
	}
	return names
}
