package group

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// planning is a member's view of the assignments: the published plan, and the next plan for the members that are
// present. It is never modified. Each look produces a new value.
type planning struct {
	setting

	at        time.Time   // the time of the last look
	head      table.Token // the token of the published plan; 0: no plan
	known     *plan.Plan  // the published plan; nil: no usable plan
	newer     error       // set if the plan is unusable because a newer version wrote it
	stale     bool        // the head has changed, and the body was not read yet
	members   []plan.Member
	next      *plan.Plan    // the next plan for these members; nil: unknown
	settling  time.Duration // the time for which a new group still waits for members
	differs   time.Time     // the time from which next has differed from the published plan, by Spanner's clock; zero: it does not
	toPublish bool          // it is this member's turn to publish
	rows      bool          // the next look must read all partitions, because there is no plan
	full      bool          // this member has passed its trial
}

// setting holds the values that do not change during a term.
type setting struct {
	list  plan.List
	lease time.Duration
	delay time.Duration // how long a new group waits for more members
	slot  int           // this member's slot
	token table.Token
}

// after returns the planning that follows from a look.
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

// read updates the planning with the plan that a look shows.
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
	} // any other unreadable body is replaced, as if there were no plan
	return p
}

// counted returns the members that get partitions. A member counts if it is in the published plan, if its heartbeats
// show that it has lived for one lease duration, or if all members are as young as it is. A member that crashes each
// time it starts therefore takes nothing from the others. The age of the last heartbeat does not matter, because a
// member is present until it is evicted.
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

// is reports whether m is this member.
func (p planning) is(m plan.Member) bool { return m.Slot == p.slot && m.Token == int64(p.token) }

// evicted returns the planning without the members in the given slots, which were evicted.
func (p planning) evicted(slots []string) planning {
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(m plan.Member) bool {
		return slices.ContainsFunc(slots, func(name string) bool { part, _ := table.PartOf(name); return part.Slot == m.Slot })
	})
	if p.known == nil || p.next == nil {
		return p
	}
	return p.follow()
}

// waitFor returns how long the group waits for more members. It waits only if it is new, or if none of its planned
// members is present any longer. The wait lasts until no member has joined for the delay, but at most one lease
// duration. Without the wait, the first member would start work that then moves to other members.
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

// follow computes the next plan from the published plan.
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

// begin prepares for the first plan, which is based on the members that currently have the partitions. No member claims
// or releases anything until it is published.
func (p planning) begin(s table.GroupSnapshot) planning {
	p.next = nil
	if p.differs.IsZero() {
		p.differs = s.At
	}
	return p
}

// base returns the plan that corresponds to the rows of all partitions.
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

// turn determines whether it is this member's turn to publish. The members try one after the other, in the order of
// their slots.
func (p planning) turn() planning {
	p.toPublish = !p.differs.IsZero() && p.turnIn() == 0
	p.rows = p.known == nil && p.toPublish
	return p
}

// turnIn returns the time until this member may publish. It returns the constant never if there is nothing to publish
// or if this member does not count.
func (p planning) turnIn() time.Duration {
	i := slices.IndexFunc(p.members, p.is)
	if i < 0 || p.differs.IsZero() {
		return never
	}
	return max(p.differs.Add(time.Duration(i)*p.lease/10).Sub(p.at), 0)
}

// without returns the plan for the group without this member, and whether that plan is known and differs from the
// published one.
func (p planning) without() (*plan.Plan, bool) {
	if p.known == nil {
		return nil, false
	}
	next, told := p.known.Next(p.list, slices.DeleteFunc(slices.Clone(p.members), p.is), p.at)
	return next, told && !p.known.Same(next)
}

// published returns the planning after this member has published a plan.
func (p planning) published(head table.Token, next *plan.Plan) planning {
	p.head, p.known, p.next, p.newer, p.stale, p.differs, p.rows = head, next, next, nil, false, time.Time{}, false
	return p
}

// counts reports whether this member counts.
func (p planning) counts() bool { return slices.ContainsFunc(p.members, p.is) }

// targets returns the partitions that are assigned to this member, as indexes into the list.
func (p planning) targets() []int {
	if p.next == nil || !p.counts() {
		return nil
	}
	return p.next.Assigned(p.list, p.slot)
}

// planned reports whether the assignment of partitions to members is known.
func (p planning) planned() bool { return p.next != nil && p.known != nil }

// lives reports whether the member in this row has sent a heartbeat within its lease.
func lives(o table.Observation) bool {
	return isMember(o) && o.At.Sub(o.Heartbeat) < o.LeaseRecord.Lease
}

// present reports whether the member in this row is present, which means that it was not evicted and has not announced
// that it is leaving.
func present(o table.Observation) bool { return isMember(o) && !o.Leaving() }

func isMember(o table.Observation) bool {
	return o.Confirmed() && o.LeaseRecord != nil && o.LeaseRecord.ListDigest != ""
}

// since returns when a member joined. This is its token, or the token of the term that it reclaimed.
func since(o table.Observation) table.Token { return cmp.Or(o.LeaseRecord.Since, o.Token) }
