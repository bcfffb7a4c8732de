package group

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// planning is this member's knowledge of the assignments: the published plan, and what follows from it for the present
// members. It is a value: each look makes the next one.
type planning struct {
	setting

	at        time.Time   // of the last look
	head      table.Token // of the published plan; 0: there is none
	known     *plan.Plan  // the published plan; nil: none can be used
	newer     error       // why none can be used: a newer version wrote it
	stale     bool        // the head has changed, and the body is still to be read
	members   []plan.Member
	next      *plan.Plan    // what follows for these members; nil: not known
	settling  time.Duration // until a new group has all its members
	differs   time.Time     // since when next differs from the published plan, by Spanner's clock; zero: it does not
	toPublish bool          // it is this member's turn
	rows      bool          // the next look has to read all partitions, because there is no plan
	full      bool          // this member's trial is over
}

// setting is what does not change during a term.
type setting struct {
	list  plan.List
	lease time.Duration
	delay time.Duration // how long a new group waits for more members
	slot  int           // of this member
	token table.Token
}

// after returns the planning after a look.
func (p planning) after(s table.GroupSnapshot, bodyRead bool) planning {
	p.at, p.toPublish = s.At, false
	p = p.read(s, bodyRead)
	if p.stale || s.Members == nil {
		return p
	}
	p.members = p.counted(s)
	p.settling = p.waitFor(s)
	switch {
	case p.newer != nil:
		p.next = nil
		return p
	case p.settling > 0:
		p.next, p.differs = nil, time.Time{}
		return p
	case p.known != nil:
		p = p.follow()
	default:
		p = p.begin(s)
	}
	return p.turn()
}

// read takes in the plan that a look shows.
func (p planning) read(s table.GroupSnapshot, bodyRead bool) planning {
	switch {
	case s.Plan == p.head && !p.stale && (p.known != nil || p.newer != nil || s.Plan == 0):
		return p
	case s.Plan == 0:
		p.head, p.known, p.newer, p.stale = s.Plan, nil, nil, false
		return p
	case !bodyRead:
		p.stale = true
		return p
	}
	p.head, p.known, p.newer, p.stale = s.Plan, nil, nil, false
	known, err := plan.Decode(s.Body, p.list)
	switch {
	case errors.Is(err, plan.ErrNewer):
		p.newer = err
	case err == nil:
		p.known = known
	} // any other body that can't be read is replaced, as if there were none
	return p
}

// counted returns the members that get partitions. A member counts once it is in the published plan, or its heartbeats
// show that it has lived for a lease, or all are as young as it is: one that crashes whenever it starts takes nothing
// from the others. The age of its last heartbeat does not matter: a member is there until it is evicted.
func (p planning) counted(s table.GroupSnapshot) (members []plan.Member) {
	oldest := table.TokenAt(s.At)
	for _, o := range s.Members {
		if present(o) {
			oldest = min(oldest, since(o))
		}
	}
	planned := map[int]plan.Member{}
	for _, m := range p.known.Members() {
		planned[m.Slot] = m
	}
	for name, o := range s.Members {
		if !present(o) || s.Unreadable[name] != nil {
			continue
		}
		part, _ := table.PartOf(name)
		m := plan.Member{Slot: part.Slot, Token: int64(o.Token), List: o.LeaseRecord.ListDigest, Weight: cmp.Or(o.LeaseRecord.Weight, 1), Trial: o.LeaseRecord.Trial}
		if o.LeaseRecord.Keep > 0 {
			m.ID, m.Keep = o.LeaseRecord.ID, o.LeaseRecord.Keep
		}
		before, known := planned[m.Slot]
		known = known && before.Token == m.Token
		began := since(o).Time()
		if !known && o.Heartbeat.Sub(began) < o.LeaseRecord.Lease && began.Sub(oldest.Time()) >= o.LeaseRecord.Lease {
			continue
		}
		if m.Trial && (known && !before.Trial || p.is(m) && p.full) {
			m.Trial = false
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b plan.Member) int { return cmp.Compare(a.Slot, b.Slot) })
	return members
}

// is reports whether a member is this one.
func (p planning) is(m plan.Member) bool { return m.Slot == p.slot && m.Token == int64(p.token) }

// evicted returns the planning without evicted members.
func (p planning) evicted(slots []string) planning {
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(m plan.Member) bool {
		return slices.ContainsFunc(slots, func(name string) bool { part, _ := table.PartOf(name); return part.Slot == m.Slot })
	})
	if p.known == nil || p.next == nil {
		return p
	}
	return p.follow()
}

// waitFor returns how long a group waits for more members, if it is new or none of its planned members is there any
// more: until none has joined for the delay, and for a lease at most. So the first does not begin what others are to
// have.
func (p planning) waitFor(s table.GroupSnapshot) time.Duration {
	for _, m := range p.members {
		if slices.ContainsFunc(p.known.Members(), func(k plan.Member) bool { return k.Slot == m.Slot && k.Token == m.Token }) {
			return 0
		}
	}
	var first, last time.Time
	for _, o := range s.Members {
		if !present(o) {
			continue
		}
		began := o.Token.Time()
		if first.IsZero() || began.Before(first) {
			first = began
		}
		if began.After(last) {
			last = began
		}
	}
	return max(min(last.Add(p.delay).Sub(s.At), first.Add(max(p.lease, p.delay)).Sub(s.At)), 0)
}

// follow computes what follows from the published plan.
func (p planning) follow() planning {
	next, told := p.known.Next(p.list, p.members, p.at)
	if !told {
		p.next, p.differs = nil, time.Time{}
		return p
	}
	p.next = next
	switch {
	case p.known.Same(next):
		p.differs = time.Time{}
	case p.differs.IsZero():
		p.differs = p.at
	}
	return p
}

// begin makes the first plan, by who has which partitions: nobody claims or releases anything before it is published.
func (p planning) begin(s table.GroupSnapshot) planning {
	p.next = nil
	if p.differs.IsZero() {
		p.differs = s.At
	}
	return p
}

// base returns the plan that the rows of all partitions show.
func (p planning) base(s table.GroupSnapshot, lockOf func(i int) string) *plan.Plan {
	return plan.Of(p.list, p.members, func(i int) (slot int, ok bool) {
		with, is := table.MemberOf(s.Partitions[lockOf(i)].Writer)
		o := s.Members[with.Name]
		if !is || !o.Exists || over(o, with.Token) {
			return 0, false
		}
		part, _ := table.PartOf(with.Name)
		return part.Slot, true
	})
}

// turn says whether this member is to publish: the members try one after the other, in the order of slots.
func (p planning) turn() planning {
	p.toPublish = !p.differs.IsZero() && p.turnIn() == 0
	p.rows = p.known == nil && p.toPublish
	return p
}

// turnIn returns the time until this member may publish: never, if there is nothing to publish or it does not count.
func (p planning) turnIn() time.Duration {
	i := slices.IndexFunc(p.members, p.is)
	if i < 0 || p.differs.IsZero() {
		return never
	}
	return max(p.differs.Add(time.Duration(i)*p.lease/10).Sub(p.at), 0)
}

// without returns the plan for the group without this member; false: not known.
func (p planning) without() (*plan.Plan, bool) {
	if p.known == nil {
		return nil, false
	}
	next, told := p.known.Next(p.list, slices.DeleteFunc(slices.Clone(p.members), p.is), p.at)
	return next, told && !p.known.Same(next)
}

// published takes in that this member has published a plan.
func (p planning) published(head table.Token, next *plan.Plan) planning {
	p.head, p.known, p.next, p.newer, p.stale, p.differs, p.rows = head, next, next, nil, false, time.Time{}, false
	return p
}

// counts reports whether this member counts.
func (p planning) counts() bool { return slices.ContainsFunc(p.members, p.is) }

// targets returns the partitions assigned to this member, by their indexes in the list.
func (p planning) targets() []int {
	if p.next == nil || !p.counts() {
		return nil
	}
	return p.next.Assigned(p.list, p.slot)
}

// planned reports whether it is known which partition is assigned to which member.
func (p planning) planned() bool { return p.next != nil && p.known != nil }

// lives reports whether the row's member was heard from within its lease.
func lives(o table.Observation) bool {
	return isMember(o) && o.At.Sub(o.Heartbeat) < o.LeaseRecord.Lease
}

// present reports whether a member is there: not evicted, and not about to leave.
func present(o table.Observation) bool { return isMember(o) && !o.Leaving() }

func isMember(o table.Observation) bool {
	return o.Confirmed() && o.LeaseRecord != nil && o.LeaseRecord.ListDigest != ""
}

// since returns when a member joined: its token, or the token of the term that it reclaimed.
func since(o table.Observation) table.Token { return cmp.Or(o.LeaseRecord.Since, o.Token) }
