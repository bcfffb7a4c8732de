package group

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
)

// manyMembers is the largest number of members for which every poll reads the rows of all members. If there are more
// members, a member that waits for no partition reads these rows less often, because the group's reads per second would
// otherwise grow with the square of the number of members. Every poll still reads the head of the plan, so every member
// soon notices a new plan.
const manyMembers = 100

// errReadDeadline ends the term of a member that could not poll the group in time.
var errReadDeadline = fmt.Errorf("no poll of the group succeeded in time, so this member had to stop: %w", spindle.ErrExpired)

// polls is the part of a term that decides when to poll the group, and acts on what each poll has read.
type polls struct {
	t     *term
	clock elect.Clock
	lease time.Duration

	// last is when the last successful poll of the member's own partitions was sent. A member whose polls fail must
	// stop, even if its heartbeats are acknowledged. Otherwise, it would not notice if an operator deleted its rows and
	// other members claimed its partitions.
	last         atomic.Pointer[elect.Instant]
	readDeadline *time.Timer
	failed       atomic.Pointer[error] // why the last poll failed, or nil if it succeeded

	pending bool  // a poll is in progress
	next    alarm // when to poll next
	took    time.Duration
	retry   elect.Backoff
	skip    int           // how many more polls don't read the members
	changed elect.Instant // when the plan last changed or a partition was last claimed
}

// begin schedules the first poll and the read deadline.
func (p *polls) begin(t *term, now elect.Instant) {
	p.t, p.clock, p.lease = t, t.send.config.Clock, t.send.config.Lease
	p.retry.Max = p.lease / 3
	p.last.Store(&now)
	p.readDeadline = p.clock.AfterFunc(p.limit(), func() { t.lease.CancelWork(p.late()) })
	p.next.set(p.clock, 0)
}

// soon schedules the next poll after the duration d, unless it is already due earlier.
func (p *polls) soon(d time.Duration) { p.next.sooner(p.clock, d) }

// decide schedules a poll that decides about partitions, after the duration d. Such a poll has to read the members.
func (p *polls) decide(d time.Duration) {
	p.skip = 0
	p.soon(d)
}

// aside schedules a poll because another member was faster. The pause before the poll is random, so that the members do
// not collide again.
func (p *polls) aside() { p.soon(p.clock.Random(p.lease/50 + 1)) }

// limit returns the time from sending a poll to the read deadline, at which the member stops acting.
func (p *polls) limit() time.Duration { return elect.Limit(p.lease) }

// left returns the time until the read deadline. Any goroutine may call it.
func (p *polls) left() time.Duration {
	return p.limit() - p.clock.Now().Since(*p.last.Load())
}

// extend moves the read deadline and returns true, unless the deadline has already passed.
func (p *polls) extend(sent elect.Instant) bool {
	if p.left() <= 0 || !p.readDeadline.Stop() {
		return false
	}
	p.last.Store(&sent)
	p.readDeadline.Reset(p.left())
	return true
}

// late returns the reason for the end of a term at its read deadline: errReadDeadline and, if the last poll failed, the
// poll's error.
func (p *polls) late() error {
	if failed := p.failed.Load(); failed != nil {
		return fmt.Errorf("%w; the last poll failed: %w", errReadDeadline, *failed)
	}
	return errReadDeadline
}

// beforeDeadline limits the duration d to part, or to lease/50 if that is longer. Callers set part to a fraction of the
// time until the read deadline, so that another poll is possible before the deadline.
func (p *polls) beforeDeadline(d, part time.Duration) time.Duration {
	if p.left() > 0 {
		d = min(d, max(part, p.lease/50))
	}
	return d
}

// patient returns the pause before the next poll of a partition that another member owns. It starts at about
// lease/50, because the partition will probably be released soon, and grows once the member has waited for a lease. It
// is never much shorter than three times the duration of the last poll, because frequent polls of many partitions would
// slow down their release.
func (p *polls) patient() time.Duration {
	every, waited := max(p.lease/50, 3*p.took), p.clock.Now().Since(p.changed)
	if waited < p.lease {
		return elect.Jitter(p.clock, every)
	}
	return max(waited/10, every)
}

// poll polls the group. A poll that reads the members leaves out the member's own partitions if they were polled within
// the last lease/5.
func (p *polls) poll() {
	t := p.t
	sent := p.clock.Now()
	whole := p.skip > 0 || sent.Since(*p.last.Load()) >= p.lease/5
	planning := &t.upkeep.planning
	query := t.facts().Query(table.GroupQuery{Members: p.skip == 0, Body: planning.ReadsBody(), All: planning.ReadsAll()}, whole)
	t.m.inventory.Look++
	p.pending = true
	p.next.off()
	do(t.send, p.beforeDeadline(t.send.limit(), p.left()*2/3), func(ctx context.Context) (table.GroupSnapshot, error) {
		return t.send.table.LookAtGroup(ctx, t.m.g.name, query)
	}, func(s table.GroupSnapshot, err error) {
		p.pending, p.took = false, p.clock.Now().Since(sent)
		p.failed.Store(nil)
		if err != nil {
			p.failed.Store(&err)
			t.m.voice.problems.Note(fmt.Errorf("look: %w", err))
			t.m.g.runs.Fail(err)
			if p.left() > 0 {
				p.soon(p.beforeDeadline(p.retry.Pause(p.clock), p.left()/2))
			}
			return
		}
		if whole && !p.extend(sent) {
			p.next.off()
			t.lease.CancelWork(p.late()) // the timer may not have fired yet, if only the wall clock shows that the deadline has passed
			return
		}
		t.m.g.runs.Beat(sent)
		t.conduct.Heard(sent)
		p.retry.Reset()
		p.seen(s, query)
	})
}

// seen handles the result of a poll. It decides about partitions only if the poll has read the members and, if the plan
// has changed, the new body of the plan. After any other poll, seen only records what the poll has read, schedules the
// next poll, and gives up partitions whose lease rows are missing.
func (p *polls) seen(s table.GroupSnapshot, q table.GroupQuery) {
	t, up := p.t, &p.t.upkeep
	if s.Members != nil {
		p.learn(s)
	}
	up.plan(up.planning.After(s, q.Body || q.All))
	if up.planning.Newer != nil {
		t.m.voice.problems.Note(fmt.Errorf("the group's plan can't be used (%w); until this program is updated, this member keeps its partitions and claims no others", up.planning.Newer))
	}
	p.soon(p.normal(s))
	t.moves.lose(t.m.inventory.Lost(s)...)
	if up.planning.Stale || s.Members == nil {
		if up.planning.Stale {
			p.soon(0) // the next poll reads the body, and the members with it
		} else {
			p.skip = max(p.skip-1, 0)
		}
		return
	}
	living := plan.Living(s)
	switch useless := errors.Is(t.leave.why, errUseless); {
	case useless && (living <= 1 || t.conduct.Since != elect.Instant{}): // no other member can take over the partitions
		t.leave.limit.sooner(p.clock, p.lease)
	case useless:
		t.leave.limit.off()
	}
	up.evict(t.m.memory.Dead(s, t.own.Name))
	up.weigh(s.Members[t.own.Name])
	up.publish(s, q.All)
	p.skip = 0
	if p.conclude(s) && !errors.Is(t.leave.why, errUseless) {
		p.skip = (living - 1) / manyMembers
	}
}

// conclude acts on a poll that has read the members and the current plan. It reports whether the member waits for
// nothing that it has to decide.
func (p *polls) conclude(s table.GroupSnapshot) (settled bool) {
	t, v, f := p.t, p.t.m.inventory, p.t.facts()
	d := f.Decide(share.Judge{Snapshot: s, Own: t.own, Memory: t.m.memory})
	if t.conduct.Since == (elect.Instant{}) && len(s.Unreadable) == 0 && t.upkeep.planning.Newer == nil && !t.upkeep.unpublished {
		t.m.voice.problems.Clear()
	}
	t.conduct.Absolve(d.Taken)
	t.moves.revokeAll(d.Revoke)
	if d.Again { // claims and reconciliations must follow from one snapshot
		p.soon(0)
		return false
	}
	if len(d.Claim)+len(d.Reconcile) == 0 && t.moves.idle() && !v.All.Owe() {
		t.moves.succeeded() // no failed step has to be retried
	}
	for _, rows := range v.Reconcile(d.Reconcile, f.Batch) {
		t.moves.add(rows, true, 0)
	}
	for _, rows := range v.Claim(d.Claim, f.Batch) {
		t.moves.add(rows, false, 0)
	}
	t.upkeep.showPaused(s.Members)
	if d.Next != share.NoLook {
		p.soon(d.Next + p.clock.Random(p.lease/50+1))
	}
	if d.Awaits {
		p.soon(p.patient())
	}
	if d.More && len(d.Claim) > 0 {
		p.soon(0)
	}
	return d.Next == share.NoLook && !d.Awaits && len(t.facts().Wanted()) == 0 && t.moves.idle()
}

// learn remembers what a poll shows about partitions and members, in case their rows vanish. It logs what operators
// should know.
func (p *polls) learn(s table.GroupSnapshot) {
	m := p.t.m
	m.learn(s)
	m.inventory.Learn(s, m.memory)
	if plain := m.inventory.PlainLocks(s); len(plain) > 0 {
		first := plain[0]
		m.voice.log.Warn("a plain lock has the same name as a partition, so no member can work on the partition until that lock is released or expires", "partition", m.inventory.Of(first.Name).Name,
			"lock", first.Name, "holder", first.Holder(), "token", first.Token, "partitions", len(plain))
	}
	newer := 0
	for name, err := range s.Unreadable {
		if errors.Is(err, table.ErrNewer) {
			newer++
			continue
		}
		m.voice.problems.Note(fmt.Errorf("%q: %w", name, err))
	}
	if newer > 0 {
		m.voice.problems.Note(fmt.Errorf("ignoring %d of the group's rows (%w) until this program is updated", newer, table.ErrNewer))
	}
}

// normal returns the pause before the next poll of the group. Normally, it is a third of the shortest lease in the
// group, but at least a tenth of this member's lease. It is shorter if one of these events is due sooner: another
// member's lease expires, a new group stops waiting for members, this member's turn to publish a plan comes, or this
// member starts to count as a member, after which the other members release its share.
func (p *polls) normal(s table.GroupSnapshot) time.Duration {
	t, clock, lease := p.t, p.clock, p.lease
	planning, leaseOf := &t.upkeep.planning, t.m.memory.LeaseOf
	shortest := lease
	for _, o := range s.Members {
		if plan.Lives(o) {
			shortest = min(shortest, o.LeaseRecord.Lease)
		}
	}
	least := lease / 10
	// The read deadline counts from when the last poll of the member's own partitions was sent. Even if that poll was
	// slow, the next such poll must be sent early enough to meet the deadline.
	whole := max(lease/3-clock.Now().Since(*p.last.Load()), least)
	pause := min(max(elect.Jitter(clock, shortest/3), least), whole)
	for _, d := range []time.Duration{planning.Settling, planning.TurnIn()} {
		if d > 0 {
			pause = min(pause, max(d, lease/50))
		}
	}
	if own := s.Members[t.own.Name]; !planning.Counts() && s.Members != nil && plan.Present(own) {
		left := own.LeaseRecord.Lease - s.At.Sub(plan.Since(own).Time())
		pause = min(pause, max(left, elect.Jitter(clock, lease/50)))
	}
	if plan.Living(s) > manyMembers {
		return pause // the next poll may not read the members, so it need not be early
	}
	for name, o := range s.Members {
		left := leaseOf(o) - s.At.Sub(o.Heartbeat)
		if left > 0 && leaseOf(o) < lease {
			left = max(left, least)
		}
		if o.Confirmed() && name != t.own.Name && left > 0 {
			pause = min(pause, left+clock.Random(lease/50+1))
		}
	}
	return pause
}
