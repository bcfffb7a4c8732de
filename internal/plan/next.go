package plan

import (
	"cmp"
	"slices"
	"time"
)

// Next returns the plan that follows p for these members. All members compute the same plan, whatever list they have,
// except for names that only their own list adds. A nil p means that no member is known to have any partitions.
//
// Next reports false if this member can't compute the plan. In that case, p has no hashes because its entries are the
// names of a different list, and one of the members has that list. That member will publish a plan that all members can
// read.
func (p *Plan) Next(l List, members []Member, now time.Time) (*Plan, bool) {
	q := counting(members)
	switch {
	case p == nil:
		p = &Plan{}
	case p.opaque && q.bit(p.whole) != 0:
		return nil, false
	case p.opaque: // none of its entries is left
		p = &Plan{}
	}
	a := q.follow(p, l, now)
	for _, c := range a.classes() {
		a.assign(c)
	}
	q.forget()
	q.whole = q.only(l)
	return q, true
}

// follow fills q with the entries of p and the names in the list. It records the owner and the former owner of each
// entry.
func (q *Plan) follow(p *Plan, l List, now time.Time) *assigning {
	s := q.succeed(p, l.digest, now)
	a := &assigning{Plan: q, load: make([]int, len(q.members))}
	bit, names := q.bit(l.digest), l.hashes
	if bit == 0 {
		names = nil
	}
	size := max(len(p.entries), len(names))
	q.entries, a.home = make([]entry, 0, size), make([]int32, 0, size)
	for i, j := 0, 0; i < len(p.entries) || j < len(names); {
		e, home := entry{owner: none, former: none}, int32(none)
		named := j < len(names) && (i == len(p.entries) || names[j] <= p.entries[i].hash)
		if i < len(p.entries) && (!named || names[j] == p.entries[i].hash) {
			e, home = s.of(p.entries[i])
			i++
		}
		if named {
			e.hash, e.lists = names[j], e.lists|bit
			j++
		}
		if e.lists != 0 {
			q.entries, a.home = append(q.entries, e), append(a.home, home)
		}
	}
	return a
}

// succession maps the indexes of one plan to those of the next.
type succession struct {
	lists   []uint16 // for each list, its bit in the next plan, or 0
	members []heir
	evicted []heir
}

// An heir is the successor of a member in the next plan.
type heir struct {
	member int32 // the index of the same member, or of the member that now has its slot, or none
	former int32 // the index of the member in evicted, or none
}

func (q *Plan) succeed(p *Plan, own string, now time.Time) succession {
	var s succession
	for _, list := range p.lists {
		bit := q.bit(list)
		if list == own { // follow sets this bit for the names in the list
			bit = 0
		}
		s.lists = append(s.lists, bit)
	}
	is, was := map[string]int32{}, map[string]bool{}
	for i, m := range q.members {
		is[m.ID] = int32(i)
	}
	for _, e := range p.evicted {
		h := heir{none, none}
		if e.Until > now.UnixMilli() {
			was[e.ID] = true
			if i, ok := is[e.ID]; ok {
				h.member = i
			} else {
				h.former = q.remember(e)
			}
		}
		s.evicted = append(s.evicted, h)
	}
	for _, m := range p.members {
		was[m.ID] = m.ID != ""
	}
	for _, m := range p.members {
		h := heir{int32(q.index(m.Slot)), none}
		if h.member == none || q.members[h.member].ID != m.ID {
			// A different member has the slot and inherits the slot's partitions. It does not inherit them if it has
			// partitions of its own, because it has returned or moved from another slot.
			if h.member != none && was[q.members[h.member].ID] {
				h.member = none
			}
			if i, ok := is[m.ID]; ok && m.ID != "" {
				h.member = i
			} else if m.ID != "" && m.Keep > 0 {
				h.former = q.remember(evicted{m.ID, now.Add(m.Keep).UnixMilli()})
			}
		}
		s.members = append(s.members, h)
	}
	return s
}

// of returns the entry with which the next plan begins. It also returns the evicted member that had the entry, if that
// member has returned. An entry remembers only one former owner. If several of its owners were evicted, this is the
// first of them.
func (s succession) of(e entry) (next entry, home int32) {
	next, home = entry{hash: e.hash, owner: none, former: none}, none
	for i, bit := range s.lists {
		if e.lists>>i&1 != 0 {
			next.lists |= bit
		}
	}
	if e.owner != none {
		next.owner, next.former = s.members[e.owner].member, s.members[e.owner].former
	}
	if e.former != none && s.evicted[e.former] != (heir{none, none}) {
		next.former, home = s.evicted[e.former].former, s.evicted[e.former].member
	}
	return next, home
}

// remember returns the index of the evicted member, which it adds if necessary.
func (p *Plan) remember(e evicted) int32 {
	i := slices.IndexFunc(p.evicted, func(x evicted) bool { return x.ID == e.ID })
	if i < 0 {
		p.evicted = append(p.evicted, e)
		return int32(len(p.evicted) - 1)
	}
	return int32(i)
}

// forget drops evicted members to which no entry belongs any more, and sorts the remaining ones.
func (p *Plan) forget() {
	if len(p.evicted) == 0 {
		return
	}
	used := make([]bool, len(p.evicted))
	for _, e := range p.entries {
		if e.former != none {
			used[e.former] = true
		}
	}
	var left []evicted
	for i, e := range p.evicted {
		if used[i] {
			left = append(left, e)
		}
	}
	slices.SortFunc(left, func(a, b evicted) int { return cmp.Compare(a.ID, b.ID) })
	for i, e := range p.entries {
		if e.former != none {
			p.entries[i].former = int32(slices.IndexFunc(left, func(x evicted) bool { return x.ID == p.evicted[e.former].ID }))
		}
	}
	p.evicted = left
}
