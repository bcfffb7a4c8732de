package group

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// manyMembers is the largest number of members for which every poll reads the rows of all members. If there are more,
// each member reads these rows less often. Otherwise, the group's reads per second would grow with the square of the
// number of members. Every poll still reads the head of the plan, so every member soon notices a new plan.
const manyMembers = 100

// errReadDeadline ends the term of a member that could not poll the group in time. The program sees it as
// spindle.ErrExpired.
var errReadDeadline error = readDeadlinePassed{}

type readDeadlinePassed struct{}

func (readDeadlinePassed) Error() string {
	return "no poll of the group was answered in time, so this member had to stop"
}

func (readDeadlinePassed) Is(target error) bool { return target == spindle.ErrExpired }

// looks tracks when a term has polled the group, and when it polls next.
type looks struct {
	clock elect.Clock
	lease time.Duration

	// last is when the last successful poll of the member's own partitions was sent. A member whose polls fail must
	// stop, even if its heartbeats are acknowledged. Otherwise, it would not notice if an operator deleted its rows and
	// other members claimed its partitions.
	last         atomic.Pointer[elect.Instant]
	readDeadline *time.Timer
	failed       atomic.Pointer[error] // why the last poll failed, or nil if it succeeded

	number  int   // the number of the last poll sent
	pending bool  // a poll is in progress
	next    alarm // when to poll next
	took    time.Duration
	retry   elect.Backoff
	skip    int           // how many more polls don't read the members
	members int           // the number of members at the last poll
	changed elect.Instant // when the plan last changed or a partition was last claimed
	turn    int           // the position of the window among the wanted partitions
	open    bool          // all partitions in the window of the last poll could be claimed
}

// limit is the time from sending a poll to the read deadline, at which the member stops by itself.
func (l *looks) limit() time.Duration { return elect.Limit(l.lease) }

// left is the time until the read deadline. Any goroutine may call it.
func (l *looks) left() time.Duration {
	return l.limit() - l.clock.Now().Since(*l.last.Load())
}

// extend moves the read deadline and returns true, unless the deadline has already passed.
func (l *looks) extend(sent elect.Instant) bool {
	if l.left() <= 0 || !l.readDeadline.Stop() {
		return false
	}
	l.last.Store(&sent)
	l.readDeadline.Reset(l.left())
	return true
}

// late returns the reason for the end of a term at its read deadline: errReadDeadline, and why the last poll failed.
func (l *looks) late() error {
	if failed := l.failed.Load(); failed != nil {
		return fmt.Errorf("%w; the last poll failed: %w", errReadDeadline, *failed)
	}
	return errReadDeadline
}

// lookLimit is the time limit for one poll. It is at most two thirds of the time until the read deadline, so that a
// second poll is possible if the first one gets no answer.
func (l *looks) lookLimit() time.Duration {
	limit := elect.Attempt(l.lease)
	if left := l.left(); left > 0 {
		limit = min(limit, max(left*2/3, l.lease/50))
	}
	return limit
}

// beforeRetry is the pause after a failed poll. It is at most half of the time until the read deadline, so that another
// poll is possible.
func (l *looks) beforeRetry() time.Duration {
	pause := l.retry.Pause(l.clock)
	if left := l.left(); left > 0 {
		pause = min(pause, max(left/2, l.lease/50))
	}
	return pause
}

// patient is the pause before the next poll of a partition that another member owns. It starts at lease/50, because the
// partition will probably be released soon, and grows with the time waited. It is at least three times the duration of
// a poll, because frequent polls of many partitions would slow down their release.
func (l *looks) patient() time.Duration {
	every, waited := max(l.lease/50, 3*l.took), l.clock.Now().Since(l.changed)
	if waited < l.lease {
		return elect.Jitter(l.clock, every)
	}
	return max(waited/10, every)
}

// look sends a poll of the group. If the member's own partitions were polled recently, the poll leaves them out, and
// reads only the partitions that the member waits for.
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
		l.failed.Store(nil)
		if err != nil {
			l.failed.Store(&err)
			t.lookFailed(err)
			return
		}
		if whole && !l.extend(sent) {
			l.next.off()
			t.lease.CancelWork(l.late()) // the timer has not fired; only the wall clock shows that the deadline has passed
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

// query returns what the next poll must read.
func (t *term) query(whole bool) table.GroupQuery {
	q := table.GroupQuery{Members: t.looks.skip == 0, Body: t.planning.ReadsBody(), All: t.planning.ReadsAll()}
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
	if t.leaving() || !t.planning.Planned() {
		return nil
	}
	for _, e := range t.m.inventory.all {
		if e.target && !e.paused && e.state == free && e.busy == nil {
			wanted = append(wanted, e)
		}
	}
	return wanted
}

// window returns the wanted partitions that the next poll reads. It returns all of them if there are only a few. It
// also returns all of them if every partition in the last window could be claimed, which happens when a group starts.
//
// Otherwise it returns the first partitions by name, because they are released first, and a section of the rest. Each
// poll reads the next section, because the first partitions may stay unavailable for a long time if work on them hangs.
func (t *term) window() []*entry {
	wanted, n := t.wanted(), 2*t.m.config.Batch
	if len(wanted) <= 2*n || t.looks.open {
		return wanted
	}
	first, rest := wanted[:n:n], wanted[n:]
	from := t.looks.turn % len(rest)
	return append(first, rest[from:min(from+n, len(rest))]...)
}

// poll returns the pause before the next poll of the group. Normally, this is a third of the shortest lease in the
// group. The pause is shorter if another member's lease expires before then, or if this member starts to count before
// then. When this member starts to count, the other members release its share of the partitions. No member works on
// that share until this member polls the group and claims it.
//
// If another member's lease is very short, this member still polls at most ten times per lease of its own.
func (t *term) poll(s table.GroupSnapshot) time.Duration {
	clock, lease := t.m.config.Clock, t.m.config.Lease
	shortest := lease
	for _, o := range s.Members {
		if plan.Lives(o) {
			shortest = min(shortest, o.LeaseRecord.Lease)
		}
	}
	least := lease / 10
	// The read deadline counts from when the last whole poll was sent. After a slow poll, the next one must still be in
	// time.
	whole := max(lease/3-clock.Now().Since(*t.looks.last.Load()), least)
	pause := min(max(elect.Jitter(clock, shortest/3), least), whole)
	if t.planning.Settling > 0 {
		pause = min(pause, max(t.planning.Settling, lease/50))
	}
	if turn := t.planning.TurnIn(); turn > 0 {
		pause = min(pause, max(turn, lease/50))
	}
	if own := s.Members[t.own.Name]; !t.planning.Counts() && s.Members != nil && plan.Present(own) {
		left := own.LeaseRecord.Lease - s.At.Sub(plan.Since(own).Time())
		pause = min(pause, max(left, elect.Jitter(clock, lease/50)))
	}
	if t.looks.members > manyMembers {
		return pause // the other members' heartbeats are from an earlier poll
	}
	for name, o := range s.Members {
		left := t.m.memory.LeaseOf(o) - s.At.Sub(o.Heartbeat)
		if left > 0 && t.m.memory.LeaseOf(o) < lease {
			left = max(left, least)
		}
		if o.Confirmed() && name != t.own.Name && left > 0 {
			pause = min(pause, left+clock.Random(lease/50+1))
		}
	}
	return pause
}
