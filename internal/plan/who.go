package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Lives reports whether row o belongs to a member whose lease has not expired.
func Lives(o table.Observation) bool {
	return isMember(o) && o.At.Sub(o.Heartbeat) < o.LeaseRecord.Lease
}

// Living returns the number of members in the snapshot whose leases have not expired.
func Living(s table.GroupSnapshot) (n int) {
	for _, o := range s.Members {
		if Lives(o) {
			n++
		}
	}
	return n
}

// Present reports whether row o belongs to a member that is present. A member is present until it announces that it is
// leaving, releases its slot, or is evicted.
func Present(o table.Observation) bool { return isMember(o) && !o.Leaving() }

func isMember(o table.Observation) bool {
	return o.Confirmed() && o.LeaseRecord != nil && o.LeaseRecord.ListDigest != ""
}

// Since returns when a member joined, as the token of its term or of the earlier term that it reclaimed.
func Since(o table.Observation) table.Token { return cmp.Or(o.LeaseRecord.Since, o.Token) }

// Over reports whether the lock row o shows that the term with this token has ended for good.
func Over(o table.Observation, token table.Token) bool {
	return o.Heartbeat.IsZero() || o.Token != token
}

// Named returns the members that a partition's rows name.
func Named(o table.Observation) (refs []table.LeaseRef) {
	keys := []string{o.Writer}
	if o.LeaseRecord != nil {
		keys = append(keys, o.LeaseRecord.With)
	}
	for _, p := range o.OrphanLeases {
		keys = append(keys, p.With)
	}
	for _, key := range keys {
		if h, ok := table.MemberOf(key); ok {
			refs = append(refs, h)
		}
	}
	return refs
}

func slotOf(name string) int { part, _ := table.PartOf(name); return part.Slot }

// Memory is what a process remembers about the members of a group, in case their rows vanish. Times are by Spanner's
// clock.
type Memory struct {
	Group   string
	Lease   time.Duration                    // this process's own
	Missing map[table.LeaseRef]time.Time     // when the row of a member was first found missing
	Leases  map[table.LeaseRef]time.Duration // the leases of members seen, until their terms are known to have ended

	Last  table.LeaseRef // this process's most recent term
	Until time.Time      // before this time, no other member can have had Last's slot; zero: one can
}

// NewMemory returns an empty memory for a process with this lease.
func NewMemory(group string, lease time.Duration) *Memory {
	return &Memory{Group: group, Lease: lease, Missing: map[table.LeaseRef]time.Time{}, Leases: map[table.LeaseRef]time.Duration{}}
}

// Learn records what a snapshot shows about the members.
func (m *Memory) Learn(s table.GroupSnapshot) {
	maps.DeleteFunc(m.Leases, func(h table.LeaseRef, _ time.Duration) bool {
		o := s.Members[h.Name]
		return o.Exists && Over(o, h.Token)
	})
	for name, o := range s.Members {
		if o.LeaseRecord != nil && s.Unreadable[name] == nil {
			m.Leases[table.LeaseRef{Name: name, Token: o.Token}] = o.LeaseRecord.Lease
		}
		for token, p := range o.OrphanLeases { // its lock row was deleted
			m.Leases[table.LeaseRef{Name: name, Token: token}] = p.Lease
		}
	}
	if o := s.Members[m.Last.Name]; o.Exists && Over(o, m.Last.Token) {
		m.Until = time.Time{}
	} else if o.Exists {
		m.Until = o.Heartbeat.Add(m.Lease) // no member evicts it before
	}
	maps.DeleteFunc(m.Missing, func(h table.LeaseRef, _ time.Time) bool { return s.Members[h.Name].Exists })
	for _, o := range s.Partitions {
		for _, with := range Named(o) {
			part, _ := table.PartOf(with.Name)
			if _, known := m.Missing[with]; !known && !s.Members[with.Name].Exists && part.Group == m.Group {
				m.Missing[with] = s.At
			}
		}
	}
}

// LeaseOf returns a member's lease, even if its lease row has since been deleted. If the lease is not known, LeaseOf
// returns this process's own lease.
func (m *Memory) LeaseOf(o table.Observation) time.Duration {
	return cmp.Or(m.Leases[table.LeaseRef{Name: o.Name, Token: o.Token}], m.Lease)
}

// Dead returns the members, other than the one in slot own, whose leases have expired.
func (m *Memory) Dead(s table.GroupSnapshot, own string) (dead []table.Observation) {
	for _, name := range slices.Sorted(maps.Keys(s.Members)) {
		o := s.Members[name]
		foreign := o.LeaseRecord != nil && o.LeaseRecord.ListDigest == "" // a plain lock that has a slot's name
		if name == own || !o.Confirmed() || foreign || s.Unreadable[name] != nil || s.At.Sub(o.Heartbeat) < m.LeaseOf(o) {
			continue
		}
		dead = append(dead, o)
	}
	return dead
}

// Slots returns the slots that the process with this id may compete for, even if they are held. It considers the slots
// up to number h+1+more, where h is the highest slot that has a row, is in the published plan, or is remembered. It
// always considers the slot of the process's last term.
//
// Slots leaves out a slot whose rows can't be read. It also leaves out a slot whose rows were deleted by hand, as long
// as another member may still be acting in that slot.
func (m *Memory) Slots(s table.GroupSnapshot, l List, id string, more int) (names []string) {
	top := slotOf(m.Last.Name) - 1 // considered even if all rows were deleted by hand
	for name := range s.Members {
		top = max(top, slotOf(name))
	}
	for h := range m.Leases { // its rows may have been deleted by hand
		top = max(top, slotOf(h.Name))
	}
	if published, err := Decode(s.Body, l); err == nil { // it may list a member in a higher slot
		for _, p := range published.members {
			top = max(top, p.Slot)
		}
	}
	for slot := range min(top+2+more, table.MaxSlot+1) {
		name := table.SlotName(m.Group, slot)
		own := name == m.Last.Name && s.At.Before(m.Until)
		if s.Unreadable[name] == nil && !m.mayAct(s.Members[name], id) && (!m.waitsFor(s, name, slot <= top) || own) {
			names = append(names, name)
		}
	}
	return names
}

// mayAct reports whether o is the row of another member that may still be acting after its lease row was deleted by
// hand. Such a member may not notice the deletion until its lease expires.
func (m *Memory) mayAct(o table.Observation, id string) bool {
	lease := m.Leases[table.LeaseRef{Name: o.Name, Token: o.Token}]
	return o.Confirmed() && o.LeaseRecord == nil && o.Writer != id && o.At.Sub(o.Heartbeat) < lease
}

// waitsFor reports whether a slot can't be claimed yet because its lock row has vanished. Spindle never deletes the
// lock row of a slot, so a person must have done so. The slot's member may act until its lease expires. That lease is
// unknown, so waitsFor assumes the longest known lease. The wait begins again if a newer lease row shows that the slot
// had another member.
func (m *Memory) waitsFor(s table.GroupSnapshot, name string, inUse bool) bool {
	o, had := s.Members[name], table.LeaseRef{Name: name}
	for token := range o.OrphanLeases {
		had.Token = max(had.Token, token)
	}
	since, known := m.Missing[had]
	switch {
	case o.Exists, !known && !inUse:
		return false
	case !known:
		m.Missing[had], since = s.At, s.At
	}
	longest := m.Lease
	for _, lease := range m.Leases {
		longest = max(longest, lease)
	}
	return s.At.Sub(since) < longest
}
