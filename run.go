package spindle

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// elector is the loop that Run starts. It is a candidate until it is elected, then the holder until its term ends, and
// then a candidate again. Only the loop's goroutine may use its fields. Other goroutines read the published view, and
// exchange events with the loop.
type elector struct {
	*Lock
	log       *slog.Logger
	observer  *loop.Mailbox // nil if there is no observer
	candidate elect.Candidate
	problems  loop.Problems
	watch     *telemetry.Watch
	last      table.Token // of this Lock's last term; 0 if there was none
	rest      rest

	gracePeriod <-chan struct{}   // closed when the grace period has elapsed
	overdue     []<-chan struct{} // one for each of the caller's functions that did not return in time
}

func newElector(l *Lock, log *slog.Logger) *elector {
	e := &elector{Lock: l, log: log, watch: l.about.Watch()}
	e.problems.Log, e.problems.What = e.log, "compete for the lock"
	e.candidate = l.config.Candidate(e.watch.Table(l.table), l.name)
	e.candidate.LeaseRecord.Kind, e.candidate.HoldOff = table.Elector, e.holdOff
	e.observer = loop.NewMailbox(l.config.Observe)
	return e
}

// Run implements loop.Loop.
func (e *elector) Run(ctx context.Context) error {
	late, forget := loop.GracePeriod(ctx, e.config.Clock, e.grace())
	defer forget()
	e.gracePeriod = late
	e.runs.Beat(e.config.Clock.Now())
	var err error
	for ctx.Err() == nil && err == nil {
		if t := e.compete(ctx); t != nil {
			err = e.lead(ctx, t)
		}
	}
	e.watch.Close()
	e.runs.Stop()
	e.show(view{})
	observing, overdue := e.observer.Drain(e.config.Lease, e.config.Clock)
	if overdue != nil {
		e.overdue = append(e.overdue, observing)
		err = errors.Join(err, overdue)
	}
	return err
}

// grace returns how long the work may continue after Run's ctx has ended.
func (e *elector) grace() time.Duration {
	if e.config.Handover {
		return 2 * e.config.Lease // an announcement can take up to a lease
	}
	return e.config.Lease
}

// compete polls the lock until the lock can be claimed, and then claims it. It returns nil once ctx has ended.
func (e *elector) compete(ctx context.Context) *elect.Term {
	for ctx.Err() == nil {
		began := e.config.Clock.Now()
		step := e.candidate.Try(ctx, elect.All, e.config.Poll)
		e.watch.Tried(step)
		if step.Seen != nil {
			e.notice(step.Seen[0], began)
		}
		switch {
		case step.Err != nil:
			e.runs.Fail(step.Err)
		case !step.CoolingDown || e.view.Load().other.LeaseRecord != nil: // otherwise this candidate could not confirm its claim, and there is no leader
			e.runs.Beat(began)
		}
		switch {
		case step.Term != nil:
			e.problems.Clear()
			return step.Term
		case ctx.Err() != nil:
			return nil
		case step.Err != nil:
			e.problems.Note(step.Err)
		case step.CoolingDown: // the reason has been logged
		default:
			e.problems.Clear()
		}
		elect.Sleep(ctx, e.config.Clock, step.Pause)
	}
	return nil
}

// notice publishes which other process leads, if there is one. It emits an event if the previous leader no longer
// leads, if there is a new leader, or if the leader has announced that it is leaving.
func (e *elector) notice(s elect.LockView, began elect.Instant) {
	before, o := e.view.Load().other, s.Observation
	if s.FreeIn <= 0 || o.Token == e.last || !leads(o) {
		o = table.Observation{}
	}
	e.show(view{other: o, looked: began})
	if before.LeaseRecord != nil && before.Token != o.Token {
		e.log.Info("leader gone", "leader", before.Holder(), "token", before.Token)
		e.emit(LeaderGone, elect.Event{Token: before.Token, Leader: before})
	}
	if o.LeaseRecord == nil {
		return
	}
	if before.Token != o.Token {
		e.log.Info("leader seen", "leader", o.Holder(), "value", o.LeaseRecord.Value, "token", o.Token)
		e.emit(LeaderSeen, elect.Event{Token: o.Token, Leader: o})
	}
	if o.Leaving() && !(before.Token == o.Token && before.Leaving()) {
		e.emit(Leaving, elect.Event{Token: o.Token, Leader: o})
	}
}

// notLost returns err, or nil if the lock was superseded, because nothing is left to release in that case.
func notLost(err error) error {
	if errors.Is(err, ErrSuperseded) {
		return nil
	}
	return err
}

func (e *elector) release(ctx context.Context, t *elect.Term, why error) error {
	err := t.Release(context.WithoutCancel(ctx), why)
	if err == nil {
		e.log.Info("released", "token", t.Token())
	} else if ctx.Err() == nil {
		e.log.Warn("stepped down, but the lock could not be released", "token", t.Token(), "err", err)
	}
	return err
}

// Overdue implements loop.Loop.
func (e *elector) Overdue() bool { return e.overdue != nil }

// End implements loop.Loop.
func (e *elector) End() {
	for _, returned := range e.overdue {
		<-returned
	}
}

func (e *elector) emit(kind EventKind, ev elect.Event) {
	e.observer.Put(int(kind), e.config.Clock.Now().Time(), ev)
}
