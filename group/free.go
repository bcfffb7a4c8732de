package group

import (
	"errors"
	"math"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// never is the wait for a partition that somebody has: until its member gives it up, or is over.
const never = time.Duration(math.MaxInt64)

// trace is what a member keeps of a partition from one look to the next, by Spanner's clock.
type trace struct {
	feared time.Duration // the lease of who had it when it was seen last; 0: nobody
	absent time.Time     // since when it is known to have no row
	free   time.Time     // since when it is known to be free
	plain  table.Token   // of a plain lock that has its name, as was said
}

// learn takes in what was observed. Rows that vanish under a member do not end what it has before its deadline: who
// has it has this lease.
func (m *trace) learn(o table.Sighting, lease time.Duration) {
	switch {
	case o.Exists && o.Heartbeat.IsZero():
		m.feared, m.absent = 0, time.Time{}
	case o.Exists:
		m.feared, m.absent = lease, time.Time{}
	case m.absent.IsZero():
		m.absent = o.At
	}
}

// judge says when a partition can be taken: by one snapshot of the group, and what was seen of it before.
type judge struct {
	roster  table.Roster
	own     table.Hold               // the member that asks
	lease   time.Duration            // its own
	missing map[table.Hold]time.Time // since when the rows of these members are known to be missing
}

// freeIn is how long after the snapshot a partition can be taken, which was learned. It assumes that the member that asks
// neither acts on it nor has anything under way for it. If that is not to be told by the lock row alone, it asks for
// a survey. It changes nothing.
func (j judge) freeIn(o table.Sighting, m trace) (wait time.Duration, survey bool) {
	with, is := table.MemberOf(o.Writer)
	switch {
	case !o.Exists:
		return j.withoutRow(o, m)
	case o.Heartbeat.IsZero():
		return 0, false // given back
	case errors.Is(j.roster.Unreadable[o.Name], table.ErrNewer):
		return never, false
	case !o.Confirmed(): // a bare claim promised nothing
		return min(j.freeWith(with, never), j.left(o.Heartbeat.Add(j.lease))), false
	case is && j.decided(with):
		return j.freeWith(with, never), false
	case !o.Surveyed:
		return never, true
	case j.roster.Unreadable[o.Name] != nil:
		return never, false
	case o.Promise == nil && is:
		return j.freeWith(with, j.lease), false // somebody deleted its lease row
	case o.Promise == nil:
		return j.left(o.Heartbeat.Add(j.lease)), false
	}
	return j.freeBy(*o.Promise, o.Heartbeat), false
}

// withoutRow judges by the stray lease rows, as somebody has deleted the lock row by hand.
func (j judge) withoutRow(o table.Sighting, m trace) (wait time.Duration, survey bool) {
	if !o.Surveyed {
		return never, true
	}
	if j.roster.Unreadable[o.Name] != nil {
		return never, false
	}
	if m.feared > 0 && len(o.Strays) == 0 {
		return j.left(m.absent.Add(m.feared)), false
	}
	for _, p := range o.Strays {
		wait = max(wait, j.freeBy(p, m.absent))
	}
	return wait, false
}

// freeBy judges by a promise: one of a lock that is no partition counts from a heartbeat.
func (j judge) freeBy(p table.Promise, heartbeat time.Time) time.Duration {
	if with, is := table.MemberOf(p.With); is {
		return j.freeWith(with, p.Lease)
	}
	return j.left(heartbeat.Add(p.Lease))
}

// decided reports whether a member is known to be over, or to be there.
func (j judge) decided(with table.Hold) bool {
	return j.roster.Unreadable[with.Name] != nil || j.roster.Members[with.Name].Exists
}

// freeWith judges by the member that has the partition, which is over once its row says so. If the row is missing,
// somebody has deleted it, and the member may not know yet: it promised to act no longer than that.
func (j judge) freeWith(with table.Hold, promised time.Duration) time.Duration {
	o := j.roster.Members[with.Name]
	switch since, missing := j.missing[with]; {
	case with == j.own:
		return 0
	case o.Exists && over(o, with.Token):
		return 0
	case !o.Exists && missing && promised != never:
		return j.left(since.Add(promised))
	}
	return never
}

// over reports whether a member's term has ended for good, by its row.
func over(o table.Observation, token table.Token) bool {
	return o.Heartbeat.IsZero() || o.Token != token
}

func (j judge) left(until time.Time) time.Duration { return max(until.Sub(j.roster.At), 0) }
