package plan

import (
	"cmp"
	"time"
)

// Next returns the plan that follows p for these members. Members with different lists compute the same plan once p
// includes their lists. A nil p assigns no partitions.
//
// Next reports false if this member can't compute the plan, because p was published without hashes and is based on a
// list that only other members have. One of those members will publish a plan with hashes, which all members can read.
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
	if len(q.lists) == 1 && q.lists[0] == l.digest {
		q.whole = l.digest
	}
	return q, true
}

// follow adds to q the names in the list, and the entries of p that are still in any list. It records the owner and the
// former owner of each entry.
func (q *Plan) follow(p *Plan, l List, now time.Time) *assigning {
	s := q.succeed(p, l.digest, now)
	a := &assigning{Plan: q, load: make([]int, len(q.members))}
	bit, names := q.bit(l.digest), l.hashes
	for _, m := range q.members {
		a.seed = append(a.seed, mix(uint64(m.Slot+1)*golden))
	}
	size := max(len(p.entries), len(names))
	q.entries, a.home = make([]entry, 0, size), make([]int32, 0, size)
	for i, j := 0, 0; i < len(p.entries) || j < len(names); {
		e, home := entry{owner: none}, int32(none)
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
			if e.former != "" {
				q.evicted[e.former] = s.until[e.former]
			}
		}
	}
	return a
}

// succession maps one plan to the next.
type succession struct {
	lists []uint16         // for each list, its bit in the next plan, or 0
	heirs []heir           // for each member
	is    map[string]int32 // the indexes in the next plan of the members with an identity
	until map[string]int64 // until when the identities of evicted members are kept
}

// An heir says who inherits the partitions of a member of the previous plan.
type heir struct {
	member int32  // the index of the same member, or of the member that now has its slot, or none
	former string // the identity of the member, if it was evicted
}

func (q *Plan) succeed(p *Plan, own string, now time.Time) succession {
	s := succession{is: map[string]int32{}, until: map[string]int64{}}
	for _, list := range p.lists {
		bit := q.bit(list)
		if list == own { // follow sets this bit for the names in the list
			bit = 0
		}
		s.lists = append(s.lists, bit)
	}
	for i, m := range q.members {
		if m.ID != "" {
			s.is[m.ID] = int32(i)
		}
	}
	was := map[string]bool{}
	for id, until := range p.evicted {
		if until > now.UnixMilli() {
			was[id], s.until[id] = true, until
		}
	}
	for _, m := range p.members {
		was[m.ID] = m.ID != ""
	}
	for _, m := range p.members {
		h := heir{member: int32(q.index(m.Slot))}
		if h.member == none || q.members[h.member].ID != m.ID {
			// The slot may now belong to a different member, which inherits the partitions of the slot. But if that
			// member has returned after an eviction or has moved from another slot, it has partitions of its own and
			// inherits none.
			if h.member != none && was[q.members[h.member].ID] {
				h.member = none
			}
			if i, ok := s.is[m.ID]; ok {
				h.member = i
			} else if m.ID != "" && m.Keep > 0 {
				h.former = m.ID
				s.until[m.ID] = cmp.Or(s.until[m.ID], now.Add(m.Keep).UnixMilli())
			}
		}
		s.heirs = append(s.heirs, h)
	}
	return s
}

// of returns the entry that replaces e in the next plan. If the former owner of e is a member again, it also returns
// that member's index. If several owners of a partition were evicted one after another, the entry records only the
// first of them.
func (s succession) of(e entry) (next entry, home int32) {
	next, home = entry{hash: e.hash, owner: none}, none
	for i, bit := range s.lists {
		if e.lists>>i&1 != 0 {
			next.lists |= bit
		}
	}
	if e.owner != none {
		next.owner, next.former = s.heirs[e.owner].member, s.heirs[e.owner].former
	}
	if s.until[e.former] > 0 {
		next.former = e.former
		if i, ok := s.is[e.former]; ok {
			next.former, home = "", i
		}
	}
	return next, home
}
