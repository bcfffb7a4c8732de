package group

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/share"
)

// assignment is the work on a partition under one token. The loop owns every field that changes.
type assignment struct {
	hold  *share.Assignment
	entry *share.Entry
	in    *term

	ctx    context.Context // ends when the assignment is revoked or the term ends
	cancel context.CancelCauseFunc

	began elect.Instant // when the work began
	pause elect.Backoff // the pause before work that returned early begins again
	again alarm
	said  bool // an early return was already logged
}

// valid reports whether the partition may be acted on. Any goroutine may call it.
func (a *assignment) valid() bool {
	return a.ctx.Err() == nil && a.in.lease.Held() && a.in.polls.left() > 0
}

// outcome is the result of an assignment's work, or of one of its writes. The zero outcome only wakes the loop.
type outcome struct {
	of   *assignment
	err  error
	gone bool // a write was refused because the partition's lease row is missing; the work may still be running
}

// takeReturned handles work that has returned, in this term or an earlier one.
func (m *member) takeReturned() (done []outcome) {
	for o, ok := m.g.inbox.Next(); ok; o, ok = m.g.inbox.Next() {
		if o.of == nil {
			continue // a request
		}
		done = append(done, o)
		if o.gone {
			continue
		}
		o.of.entry.Busy = nil
	}
	m.findStuck()
	return done
}

// works runs the program's work on the partitions of one term.
type works struct {
	t    *term
	idle []*assignment // assignments whose work returned early and will begin again
}

// begin begins to act on a partition that the member holds.
func (w *works) begin(e *share.Entry) {
	t := w.t
	a := &assignment{hold: e.Assigned, entry: e, in: t}
	a.ctx, a.cancel = context.WithCancelCause(t.lease.Context())
	a.pause.Max = t.polls.lease
	t.m.g.byName[e.Name].acted.Store(a)
	t.m.voice.emitPartition(spindle.PartitionAssigned, e, nil)
	w.run(a)
}

// run runs the program's work on a partition in its own goroutine.
func (w *works) run(a *assignment) {
	work := w.t.send.config.Work
	if work == nil {
		return
	}
	a.entry.Busy, a.began = a.hold, w.t.polls.clock.Now()
	p := a.partition()
	go func() {
		err := work(a.ctx, p.name, p.fence)
		a.in.m.g.inbox.Put(outcome{of: a, err: err})
	}()
}

// end cancels the work on a partition for good.
func (w *works) end(e *share.Entry, reason error) {
	a := w.t.m.g.byName[e.Name].acted.Swap(nil)
	w.t.m.inventory.Revoke(e, w.t.polls.clock.Now())
	if a != nil { // it has begun
		a.cancel(reason)
		w.t.m.voice.emitPartition(spindle.PartitionRevoked, e, reason)
	}
}

// collect handles work that has returned. If all revoked work has now returned, the revoked partitions are released
// immediately. Otherwise, they are released after lease/50, so that work that returns by then is included in the same
// commit.
func (w *works) collect() {
	t := w.t
	for _, o := range t.m.takeReturned() {
		a, e := o.of, o.of.entry
		switch {
		case a.in != t:
			t.polls.soon(0) // the partition can be claimed now
		case e.Assigned != a.hold:
		case o.gone:
			if e.State == share.Held {
				t.moves.lose(e)
			}
		case e.State == share.Revoking:
			t.moves.releases.sooner(t.polls.clock, t.polls.lease/50)
		case e.State == share.Held && a.ctx.Err() == nil && !t.leaving():
			w.returnedEarly(a, o.err)
		}
	}
	if t.moves.releases.on && !t.m.inventory.All.Works(true) {
		t.moves.releases.sooner(t.polls.clock, 0)
	}
}

// returnedEarly does what WithEarlyReturn says about work that returned before its context had ended. It logs a
// warning, and at level Debug if it is not the first time for this assignment.
func (w *works) returnedEarly(a *assignment, err error) {
	c := w.t.send.config
	log := w.t.m.voice.log.Warn
	if a.said {
		log = w.t.m.voice.log.Debug
	}
	a.said = true
	log("the work on a partition returned before its context ended", "partition", a.entry.Name, "token", a.hold.Token, "err", err, "then", c.OnReturn)
	if c.Clock.Now().Ran(a.began) >= c.Lease {
		a.pause.Reset()
		a.entry.EarlyReturn = share.Suspicion{}
	}
	switch c.OnReturn {
	case options.KeepIdle:
	case options.Release:
		a.entry.EarlyReturn.Fail(c.Clock.Now(), c.Lease, errReturned)
		w.t.moves.revoke(a.entry, errReturned)
	default:
		a.again.set(c.Clock, a.pause.Pause(c.Clock))
		w.idle = append(w.idle, a)
	}
}

var errReturned = errors.New("its work returned early")

// left returns the time until the next work that returned early has to begin again.
func (w *works) left() time.Duration {
	soonest := never
	for _, a := range w.idle {
		soonest = min(soonest, a.again.left(w.t.polls.clock))
	}
	return soonest
}

// restart begins work again that returned early, once its pause has elapsed.
func (w *works) restart() {
	w.idle = slices.DeleteFunc(w.idle, func(a *assignment) bool {
		switch {
		case a.ctx.Err() != nil: // revoked
		case a.again.left(w.t.polls.clock) > 0:
			return false
		default:
			w.run(a)
		}
		return true
	})
}
