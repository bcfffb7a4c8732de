package group

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// manyMembers is the number of members up to which each member reads the rows of all members at each look. In a larger
// group, members read these rows less often, so the group's reads per second grow with the number of members and not
// with its square. Every look still reads the head of the plan, so every member soon learns what the other members have
// concluded.
const manyMembers = 100

// errReadDeadline ends the term of a member that could not see the group in time. To the program it appears as
// spindle.ErrExpired.
var errReadDeadline error = readDeadlinePassed{}

type readDeadlinePassed struct{}

func (readDeadlinePassed) Error() string {
	return "no look at the group was answered in time, so this member had to stop"
}

func (readDeadlinePassed) Is(target error) bool { return target == spindle.ErrExpired }

// looks tracks when a term has looked at the group, and when it looks next.
type looks struct {
	clock elect.Clock
	lease time.Duration

	// last is the time just before the last acknowledged look at the member's own partitions was sent. A member that
	// cannot look stops, even if its heartbeats are acknowledged, because it would not see that its rows were deleted
	// by hand and that other members now have its partitions.
	last         atomic.Pointer[elect.Instant]
	readDeadline *time.Timer

	number  int   // the number of the last look sent
	pending bool  // a look is in progress
	next    alarm // when to look next
	took    time.Duration
	retry   elect.Backoff
	skip    int           // the number of further looks that don't read the members
	members int           // the number of members that the last look showed
	changed elect.Instant // when the plan last changed or a partition was last claimed
	turn    int           // the position of the window among the wanted partitions
	open    bool          // all partitions in the window of the last look could be claimed
}

// limit is the time from sending a look to the read deadline, at which the member stops by itself.
func (l *looks) limit() time.Duration { return elect.Limit(l.lease) }

// left is the time until the read deadline. Any goroutine may call it.
func (l *looks) left() time.Duration {
	return l.limit() - l.clock.Now().Since(*l.last.Load())
}

// extend moves the read deadline, unless it has passed. It reports whether it did.
func (l *looks) extend(sent elect.Instant) bool {
	if l.left() <= 0 || !l.readDeadline.Stop() {
		return false
	}
	l.last.Store(&sent)
	l.readDeadline.Reset(l.left())
	return true
}

// lookLimit is the time limit for one look. It is at most two thirds of the remaining time, so that another look can
// follow if no answer comes.
func (l *looks) lookLimit() time.Duration {
	limit := elect.Attempt(l.lease)
	if left := l.left(); left > 0 {
		limit = min(limit, max(left*2/3, l.lease/50))
	}
	return limit
}

// beforeRetry is the pause after a failed look. It is at most half of the remaining time, so that another look can
// follow.
func (l *looks) beforeRetry() time.Duration {
	pause := l.retry.Pause(l.clock)
	if left := l.left(); left > 0 {
		pause = min(pause, max(left/2, l.lease/50))
	}
	return pause
}

// patient is the pause before the next look at a partition that another member has. It is lease/50 at first, because
// the partition is about to be released, and grows with the time waited. It is never less than three times the duration
// of a look, because the looks at many partitions would otherwise hold up their releases.
func (l *looks) patient() time.Duration {
	every, waited := max(l.lease/50, 3*l.took), l.clock.Now().Since(l.changed)
	if waited < l.lease {
		return elect.Jitter(l.clock, every)
	}
	return max(waited/10, every)
}

// look sends a look at the group. If the last look at the member's own partitions was recent, this one leaves them out
// and reads only the partitions that the member waits for.
func (t *term) look() {
	l := &t.looks
	sent := l.clock.Now()
	whole := l.skip > 0 || sent.Since(*l.last.Load()) >= l.lease/5
	query := t.query(whole)
	l.number++
	l.pending = true
	l.next.off()
	var s table.GroupSnapshot
	t.exec.do(l.lookLimit(), func(ctx context.Context) (err error) {
		s, err = t.m.table.LookAtGroup(ctx, t.m.name, query)
		return err
	}, func(err error) {
		l.pending, l.took = false, l.clock.Now().Since(sent)
		if err != nil {
			t.lookFailed(err)
			return
		}
		if whole && !l.extend(sent) {
			l.next.off()
			t.lease.CancelWork(errReadDeadline) // the timer has not fired; only the wall clock shows that the deadline has passed
			return
		}
		t.m.runs.Beat(sent)
		t.acked = sent
		l.retry.Reset()
		t.seen(s, query)
	})
}

func (t *term) lookFailed(err error) {
	t.m.problems.Note(fmt.Errorf("look: %w", err))
	t.m.runs.Fail(err)
	if t.looks.left() > 0 {
		t.soon(t.looks.beforeRetry())
	}
}

// query returns what the next look must read.
func (t *term) query(whole bool) table.GroupQuery {
	q := table.GroupQuery{Members: t.looks.skip == 0, Body: t.planning.stale || t.planning.known == nil, All: t.planning.rows}
	if q.Body || q.All {
		q.Members = true
	}
	for _, e := range t.m.inventory.all {
		switch {
		case e.state == held && whole:
			q.Leases = append(q.Leases, table.LeaseRef{Name: e.lock, Token: e.assigned.token})
		case e.state == unresolved && q.Members:
			q.WithLeases = append(q.WithLeases, e.lock)
		}
	}
	if !q.Members {
		return q
	}
	for _, e := range t.window() {
		if e.leases || e.history == (history{}) {
			q.WithLeases = append(q.WithLeases, e.lock)
		} else {
			q.Rows = append(q.Rows, e.lock)
		}
	}
	return q
}

// wanted returns the partitions to claim, sorted by name.
func (t *term) wanted() (wanted []*entry) {
	if t.leaving() || !t.planning.planned() {
		return nil
	}
	for _, e := range t.m.inventory.all {
		if e.target && !e.paused && e.state == free && e.busy == nil {
			wanted = append(wanted, e)
		}
	}
	return wanted
}

// window returns the wanted partitions that the next look reads. If there are only a few, or if everything in the last
// window was free, as when a group starts, it returns all of them. Otherwise it returns the first ones by name, because
// these are released first, and a section of the rest. The section advances from look to look, because work that hangs
// can keep the first ones for a long time.
func (t *term) window() []*entry {
	wanted, n := t.wanted(), 2*t.m.config.Batch
	if len(wanted) <= 2*n || t.looks.open {
		return wanted
	}
	first, rest := wanted[:n:n], wanted[n:]
	from := t.looks.turn % len(rest)
	return append(first, rest[from:min(from+n, len(rest))]...)
}

// poll is the pause before the next look. It is a third of the shortest lease, but shorter if another member's lease
// expires or this member begins to count before then. Once this member counts, the other members give it its share at
// their next look, and no member has that share until this one looks too. Even if another member's lease is very short,
// this member looks at most ten times per lease of its own.
func (t *term) poll(s table.GroupSnapshot) time.Duration {
	clock, lease := t.m.config.Clock, t.m.config.Lease
	shortest := lease
	for _, o := range s.Members {
		if lives(o) {
			shortest = min(shortest, o.LeaseRecord.Lease)
		}
	}
	least := lease / 10
	// The time of a whole look is counted from when it was sent. After a slow one, the next must still follow in time.
	whole := max(lease/3-clock.Now().Since(*t.looks.last.Load()), least)
	pause := min(max(elect.Jitter(clock, shortest/3), least), whole)
	if t.planning.settling > 0 {
		pause = min(pause, max(t.planning.settling, lease/50))
	}
	if turn := t.planning.turnIn(); turn > 0 {
		pause = min(pause, max(turn, lease/50))
	}
	if own := s.Members[t.own.Name]; !t.planning.counts() && s.Members != nil && present(own) {
		left := own.LeaseRecord.Lease - s.At.Sub(since(own).Time())
		pause = min(pause, max(left, elect.Jitter(clock, lease/50)))
	}
	if t.looks.members > manyMembers {
		return pause // the other members' heartbeats are from an earlier look
	}
	for name, o := range s.Members {
		left := t.leaseOf(o) - s.At.Sub(o.Heartbeat)
		if left > 0 && t.leaseOf(o) < lease {
			left = max(left, least)
		}
		if o.Confirmed() && name != t.own.Name && left > 0 {
			pause = min(pause, left+clock.Random(lease/50+1))
		}
	}
	return pause
}
