package group

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// assignment is the work on a partition under one token. The loop owns every field that changes.
type assignment struct {
	hold  *share.Assignment
	entry *share.Entry
	in    *term
	stall *loop.Stall

	ctx    context.Context // ends when the assignment is revoked or the term ends
	cancel context.CancelCauseFunc
}

// valid reports whether the partition may be acted on. Any goroutine may call it.
func (a *assignment) valid() bool {
	return a.ctx.Err() == nil && a.in.lease.Held() && a.in.polls.left() > 0
}

// outcome is the result of an assignment's work, or the reason why the work must end. The zero outcome only wakes the
// loop.
type outcome struct {
	of     *assignment
	lasted time.Duration // how long the work was running

	// If the work has to end, this field says why: the work has stalled, or a read has shown that the partition's lease
	// row is missing. If the work has returned, the field is nil.
	must error
}

// takeReturned handles work that has returned or stalled, in this term or an earlier one.
func (m *member) takeReturned() (done []outcome) {
	for o, ok := m.g.inbox.Next(); ok; o, ok = m.g.inbox.Next() {
		if o.of == nil {
			continue // a request
		}
		done = append(done, o)
		switch {
		case o.must == nil:
			o.of.entry.Busy = nil
			if o.lasted >= m.g.config.Lease && errors.Is(o.of.entry.EarlyReturn.Err, errReturned) { // a stall keeps its pause
				o.of.entry.EarlyReturn = share.Suspicion{}
			}
		case errors.Is(o.must, spindle.ErrStalled):
			m.stalled(o.of, o.must)
		}
	}
	return done
}

// beginWork begins to act on a partition that the member holds.
func (t *term) beginWork(e *share.Entry) {
	a := &assignment{hold: e.Assigned, entry: e, in: t}
	a.ctx, a.cancel = context.WithCancelCause(t.lease.Context())
	c := t.send.config
	a.stall = &loop.Stall{Work: a.ctx, Clock: c.Clock, Limit: c.Stall, Slow: loop.LogSlow(t.m.voice.log.With("partition", e.Name, "token", a.hold.Token)), End: a.end}
	t.m.g.byName[e.Name].acted.Store(a)
	t.m.voice.emitPartition(spindle.PartitionAssigned, a, nil)
	if c.Work != nil {
		e.Busy = a.hold
		go func() { t.m.g.inbox.Put(outcome{of: a, lasted: a.work()}) }()
	}
}

// work calls the program's function for the partition. It logs each early return, the first one as a warning and later
// ones at level Debug. Unless WithEarlyReturn says otherwise, it then calls the function again. It returns the duration
// of the last call.
func (a *assignment) work() (lasted time.Duration) {
	c, p := a.in.send.config, a.partition()
	pause, level := elect.Backoff{Max: c.Lease}, slog.LevelWarn
	for a.ctx.Err() == nil {
		began := c.Clock.Now()
		stop := a.stall.Watch()
		err := c.Work(a.ctx, p.name, p.fence, a.stall)
		stop()
		lasted = c.Clock.Now().Ran(began)
		if a.ctx.Err() != nil {
			break
		}
		a.in.m.voice.log.Log(a.ctx, level, "the work on a partition returned before its context ended", "partition", p.name, "token", a.hold.Token, "err", err, "then", c.OnReturn)
		level = slog.LevelDebug
		if c.OnReturn != options.BeginAgain {
			break
		}
		if lasted >= c.Lease {
			pause.Reset()
		}
		elect.Sleep(a.ctx, c.Clock, pause.Pause(c.Clock))
	}
	return lasted
}

// endWork cancels the work on a partition for good.
func (t *term) endWork(e *share.Entry, reason error) {
	a := t.m.g.byName[e.Name].acted.Swap(nil)
	t.m.inventory.Revoke(e, t.polls.clock.Now())
	if a != nil { // it has begun
		a.cancel(reason)
		t.m.voice.emitPartition(spindle.PartitionRevoked, a, reason)
	}
}

// collect handles work that has returned or has to end. If all revoked work has now returned, the revoked partitions
// are released immediately. Otherwise, the partitions whose work has returned are released after lease/50. The same
// commit then covers work that returns within that time.
func (t *term) collect() {
	for _, o := range t.m.takeReturned() {
		a, e := o.of, o.of.entry
		switch {
		case o.must != nil && (e.Assigned != a.hold || e.State != share.Held): // the work has already been told to end
		case a.in != t, e.Assigned != a.hold && e.Wanted() && !t.leaving():
			t.polls.decide(0)
		case e.Assigned != a.hold:
		case errors.Is(o.must, spindle.ErrStalled):
			e.EarlyReturn = share.Suspicion{} // stalls are at least a heartbeat interval apart, so the pause need not grow
			rest(t, e, o.must)
		case o.must != nil:
			t.moves.lose(e)
		case e.State == share.Revoking:
			t.moves.releases.sooner(t.polls.clock, t.polls.lease/50)
		case e.State == share.Held && t.send.config.OnReturn == options.Release && a.ctx.Err() == nil && !t.leaving():
			rest(t, e, errReturned)
		}
	}
	if t.moves.releases.on && !t.m.inventory.All.Works(true) {
		t.moves.releases.sooner(t.polls.clock, 0)
	}
}

// rest revokes a partition, and leaves it alone for a while.
func rest(t *term, e *share.Entry, reason error) {
	e.EarlyReturn.Fail(t.polls.clock.Now(), t.polls.lease, reason)
	t.moves.revoke(e, reason)
}

// stalled reports work that makes no progress. The partition stays with this member until the work has returned.
func (m *member) stalled(a *assignment, reason error) {
	m.voice.log.Warn("the work on a partition has stalled; the partition is released once the work has returned", "partition", a.entry.Name, "token", a.hold.Token, "reason", reason)
	m.g.about.Stalled(telemetry.Partition.String(a.entry.Name))
	m.voice.emitPartition(spindle.Stalled, a, reason)
}

var errReturned = errors.New("its work returned early")
