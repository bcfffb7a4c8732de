package plan

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Planning is a member's view of which partitions are assigned to which member. It contains the published plan, and the
// next plan for the members that count. A Planning is immutable. Each poll produces a new one.
type Planning struct {
	Setting  Setting
	Head     table.Token   // the token of the published plan; 0: no plan
	Newer    error         // set if the plan is unusable because a newer version wrote it
	Stale    bool          // the head has changed, and the body was not read yet
	Next     *Plan         // the next plan for the members that count; nil: unknown
	Settling time.Duration // how much longer a new group waits for members
	Full     bool          // this member has passed its trial

	at      time.Time // the time of the last poll
	known   *Plan     // the published plan; nil: no usable plan
	members []Member  // the members that count
	differs time.Time // since when Next has differed from the published plan, by Spanner's clock; zero: it does not differ
}

// Setting holds the values that do not change during a term.
type Setting struct {
	List  List
	Lease time.Duration
	Delay time.Duration // how long a new group waits for more members
	Slot  int           // this member's slot
	Token table.Token
}

// never is the wait of a member that has nothing to publish.
const never = time.Duration(math.MaxInt64)

// After returns the planning that follows from a poll.
func (p Planning) After(s table.GroupSnapshot, bodyRead bool) Planning {
	p.at = s.At
	p = p.read(s, bodyRead)
	if p.Stale || s.Members == nil {
		return p
	}
	p.members = p.counted(s)
	p.Settling = p.waitFor(s)
	if p.Newer != nil || p.Settling > 0 {
		p.Next, p.differs = nil, time.Time{}
		return p
	}
	return p.follow()
}

// read updates the planning with the plan that a poll has read.
func (p Planning) read(s table.GroupSnapshot, bodyRead bool) Planning {
	switch {
	case s.Plan == p.Head && !p.Stale && (p.known != nil || p.Newer != nil || s.Plan == 0):
		return p
	case s.Plan != 0 && !bodyRead:
		p.Stale = true
		return p
	}
	p.Head, p.known, p.Newer, p.Stale = s.Plan, nil, nil, false
	known, err := Decode(s.Body, p.Setting.List)
	switch {
	case errors.Is(err, ErrNewer):
		p.Newer = err
	case err == nil:
		p.known = known
	} // any other unreadable body is replaced, as if there were no plan
	return p
}

// counted returns the members that count. The plan assigns partitions only to these members. docs/groups.md states the
// rules. The age of the last heartbeat does not matter, because a member whose lease has expired keeps its partitions
// until it is evicted.
func (p Planning) counted(s table.GroupSnapshot) (members []Member) {
	oldest := table.TokenAt(s.At)
	for _, o := range s.Members {
		if Present(o) {
			oldest = min(oldest, Since(o))
		}
	}
	planned := map[int]Member{}
	for _, m := range p.known.Members() {
		planned[m.Slot] = m
	}
	for name, o := range s.Members {
		if !Present(o) || s.Unreadable[name] != nil {
			continue
		}
		m := Member{Slot: slotOf(name), Token: int64(o.Token), List: o.LeaseRecord.ListDigest, Weight: cmp.Or(o.LeaseRecord.Weight, 1), Trial: o.LeaseRecord.Trial}
		if o.LeaseRecord.Keep > 0 {
			m.ID, m.Keep = o.LeaseRecord.ID, o.LeaseRecord.Keep
		}
		before, known := planned[m.Slot]
		known = known && before.Token == m.Token
		began := Since(o).Time()
		if !known && o.Heartbeat.Sub(began) < o.LeaseRecord.Lease && began.Sub(oldest.Time()) >= o.LeaseRecord.Lease {
			continue
		}
		if m.Trial && (known && !before.Trial || p.is(m) && p.Full) {
			m.Trial = false
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Slot, b.Slot) })
	return members
}

// is reports whether m describes this member.
func (p Planning) is(m Member) bool {
	return m.Slot == p.Setting.Slot && m.Token == int64(p.Setting.Token)
}

// Evicted returns the planning without the members in the given slots, which were evicted.
func (p Planning) Evicted(slots []string) Planning {
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(m Member) bool {
		return slices.ContainsFunc(slots, func(name string) bool { return slotOf(name) == m.Slot })
	})
	if p.Next == nil {
		return p
	}
	return p.follow()
}

// waitFor returns how much longer the group must wait for more members. A group waits if it is new, or if all members
// in its plan have left. The documentation of group.WithInitialDelay states the rules.
func (p Planning) waitFor(s table.GroupSnapshot) time.Duration {
	for _, m := range p.members {
		if slices.ContainsFunc(p.known.Members(), func(k Member) bool { return k.Slot == m.Slot && k.Token == m.Token }) {
			return 0
		}
	}
	first, last := table.Token(math.MaxInt64), table.Token(0)
	for _, o := range s.Members {
		if Present(o) {
			first, last = min(first, o.Token), max(last, o.Token)
		}
	}
	set := p.Setting
	return max(min(last.Time().Add(set.Delay).Sub(s.At), first.Time().Add(max(set.Lease, set.Delay)).Sub(s.At)), 0)
}

// follow computes the next plan from the published plan. If no usable plan is published, the next plan is unknown, and
// no partition is claimed or moved until a member has published one.
func (p Planning) follow() Planning {
	p.Next = nil
	if p.known != nil {
		next, told := p.known.Next(p.Setting.List, p.members, p.at)
		p.Next = next
		if !told || p.known.Same(next) {
			p.differs = time.Time{}
			return p
		}
	}
	if p.differs.IsZero() {
		p.differs = p.at
	}
	return p
}

// ToPublish returns the plan that this member should publish now, or false if there is none. If the group has no usable
// plan, the new plan is based on the current owners of the partitions, so ToPublish needs a snapshot of all partitions.
// lockOf(i) returns the lock name of partition i.
func (p Planning) ToPublish(s table.GroupSnapshot, allRead bool, lockOf func(i int) string) (next *Plan, ok bool) {
	switch {
	case p.TurnIn() > 0:
		return nil, false
	case p.known != nil:
		return p.Next, true
	case !allRead:
		return nil, false
	}
	owners := Of(p.Setting.List, p.members, func(i int) (slot int, ok bool) {
		with, is := table.MemberOf(s.Partitions[lockOf(i)].Writer)
		o := s.Members[with.Name]
		if !is || !o.Exists || Over(o, with.Token) {
			return 0, false
		}
		return slotOf(with.Name), true
	})
	return owners.Next(p.Setting.List, p.members, s.At)
}

// ReadsAll reports whether the next poll must read all partitions, because it is this member's turn to publish a plan
// and there is no usable plan to follow.
func (p Planning) ReadsAll() bool { return p.known == nil && p.TurnIn() == 0 }

// ReadsBody reports whether the next poll must read the body of the plan.
func (p Planning) ReadsBody() bool { return p.known == nil || p.Stale }

// TurnIn returns how long this member must wait before it may publish the next plan. It returns the constant never if
// there is nothing to publish, or if this member does not count.
func (p Planning) TurnIn() time.Duration {
	i := slices.IndexFunc(p.members, p.is)
	if i < 0 || p.differs.IsZero() {
		return never
	}
	return max(p.differs.Add(time.Duration(i)*p.Setting.Lease/10).Sub(p.at), 0)
}

// Without returns the next plan for the group without this member. It returns false if that plan is unknown or is the
// same as the published plan, or if no other member counts. A plan without members would contain no partitions, and
// therefore no identities that are kept.
func (p Planning) Without() (*Plan, bool) {
	others := slices.DeleteFunc(slices.Clone(p.members), p.is)
	if p.known == nil || len(others) == 0 {
		return nil, false
	}
	next, told := p.known.Next(p.Setting.List, others, p.at)
	return next, told && !p.known.Same(next)
}

// Published returns the planning after this member has published a plan.
func (p Planning) Published(head table.Token, next *Plan) Planning {
	p.Head, p.known, p.Next, p.Newer, p.Stale, p.differs = head, next, next, nil, false, time.Time{}
	return p
}

// Members returns the number of members that count.
func (p Planning) Members() int { return len(p.members) }

// Counts reports whether this member counts.
func (p Planning) Counts() bool { return slices.ContainsFunc(p.members, p.is) }

// Targets returns the partitions that are assigned to this member, as indexes into the list.
func (p Planning) Targets() []int {
	if !p.Counts() {
		return nil
	}
	return p.Next.Assigned(p.Setting.List, p.Setting.Slot)
}

// Planned reports whether the assignment of partitions to members is known.
func (p Planning) Planned() bool { return p.Next != nil && p.known != nil }

// Settled reports whether the published plan is up to date for the members that count, and this member is one of them.
func (p Planning) Settled() bool { return p.Planned() && p.Counts() && p.differs.IsZero() }
