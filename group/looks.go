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

// manyMembers is up to how many members each reads the rows of all at each look. With more, it does so less often: a
// group's reads per second then grow with the number of its members, not with its square. Every look reads the head of
// the plan, so every member learns in time what others have concluded.
const manyMembers = 100

// errReadDeadline says that a member that could not see the group has stopped. A program sees spindle.ErrExpired.
var errReadDeadline error = readDeadlinePassed{}

type readDeadlinePassed struct{}

func (readDeadlinePassed) Error() string {
	return "no look at the group was answered in time, so the lease has run out for this member"
}

func (readDeadlinePassed) Is(target error) bool { return target == spindle.ErrExpired }

// looks is when a term has looked, and when it looks again.
type looks struct {
	clock elect.Clock
	lease time.Duration

	// last is the instant before the last acknowledged look at the member's own partitions was sent. A member that
	// can't look stops, even if its heartbeats are acknowledged: somebody may have deleted rows by hand, and it would
	// not see that others have its partitions.
	last         atomic.Pointer[elect.Instant]
	readDeadline *time.Timer

	number  int   // of the last one that was sent
	pending bool  // it is under way
	next    alarm // when to look
	took    time.Duration
	retry   elect.Backoff
	skip    int           // looks that don't read the members
	members int           // how many the last look has shown
	changed elect.Instant // when the plan changed, or something was claimed
	turn    int           // how many of the wanted partitions were looked at in turn
	open    bool          // all partitions of the last look could be claimed
}

// limit is how long after sending a look the member stops by itself.
func (l *looks) limit() time.Duration { return elect.Limit(l.lease) }

// left is the time until the read deadline. Any goroutine may ask.
func (l *looks) left() time.Duration {
	return l.limit() - l.clock.Now().Since(*l.last.Load())
}

// extend moves the read deadline, unless it has passed.
func (l *looks) extend(sent elect.Instant) bool {
	if l.left() <= 0 || !l.readDeadline.Stop() {
		return false
	}
	l.last.Store(&sent)
	l.readDeadline.Reset(l.left())
	return true
}

// lookLimit is how long one look may take: two thirds of the remaining time, so that another follows if its answer is
// lost.
func (l *looks) lookLimit() time.Duration {
	limit := elect.Attempt(l.lease)
	if left := l.left(); left > 0 {
		limit = min(limit, max(left*2/3, l.lease/50))
	}
	return limit
}

// beforeRetry is the pause after a failed look: at most half of the remaining time, so that another follows.
func (l *looks) beforeRetry() time.Duration {
	pause := l.retry.Pause(l.clock)
	if left := l.left(); left > 0 {
		pause = min(pause, max(left/2, l.lease/50))
	}
	return pause
}

// patient is the pause before the next look at another member's partition: lease/50 at first, because it is about to be
// released. If many are awaited, it is three times what a look takes: otherwise the looks would hold up the releases.
func (l *looks) patient() time.Duration {
	every, waited := max(l.lease/50, 3*l.took), l.clock.Now().Since(l.changed)
	if waited < l.lease {
		return elect.Jitter(l.clock, every)
	}
	return max(waited/10, every)
}

// look sends a look at the group. A look soon after another leaves out the member's own partitions: it is for those
// that the member waits for.
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
			t.lease.CancelWork(errReadDeadline) // only the wall clock shows that: the timer has not fired
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

// query returns what the next look has to read.
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

// window returns which wanted partitions the next look reads. If there are many, and not all just free, as after a
// start, it is the first by name, which are released first, and others in turn, because hanging work may keep the first
// for long.
func (t *term) window() []*entry {
	wanted, n := t.wanted(), 2*t.m.config.Batch
	if len(wanted) <= 2*n || t.looks.open {
		return wanted
	}
	first, rest := wanted[:n:n], wanted[n:]
	from := t.looks.turn % len(rest)
	return append(first, rest[from:min(from+n, len(rest))]...)
}

// poll is the pause before the next look: a third of the shortest lease, or until another member may be over, or until
// this member counts. The others then give it its share at their next look, and nobody has that share until this member
// looks too. However short another's lease is, this member looks at most ten times in its own.
func (t *term) poll(s table.GroupSnapshot) time.Duration {
	clock, lease := t.m.config.Clock, t.m.config.Lease
	shortest := lease
	for _, o := range s.Members {
		if lives(o) {
			shortest = min(shortest, o.LeaseRecord.Lease)
		}
	}
	least := lease / 10
	// Whole looks are counted from when they were sent: after one that takes long, the next must follow in time.
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
		return pause // what is known of the others is older than this look
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
