package spindle

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
	"github.com/spindle-lock/spindle/internal/wait"
)

// elector is the loop that Run starts. It is a candidate until it is elected, then the leader until its term ends, and
// then a candidate again. It runs in its own goroutine until Run's ctx has ended and the last term is over. Other
// goroutines read the view that the elector publishes in the Lock, and put events into the leader's inbox.
type elector struct {
	lock      *Lock
	config    *options.Config // of the lock
	log       *slog.Logger
	observer  *loop.Mailbox // nil if there is no observer
	candidate elect.Candidate
	problems  loop.Problems
	watch     *telemetry.Watch
	last      table.Token // of this Lock's last term; 0 if there was none
	rest      rest
	follower  wait.Follower

	gracePeriod <-chan struct{} // closed when the grace period has elapsed
	overdue     func()          // waits for a leader function that did not return in time; nil if there is none
}

func newElector(l *Lock, log *slog.Logger) *elector {
	e := &elector{lock: l, config: &l.config, log: log, watch: l.about.Watch()}
	e.problems.Log, e.problems.What = e.log, "compete for the lock"
	e.candidate = e.config.Candidate(e.watch.Table(l.table), l.name)
	e.candidate.LeaseRecord.Kind = table.Elector
	e.follower = wait.Follower{Config: e.config, Ear: e.config.Ear()}
	return e
}

// run is a loop.Loop.
func (e *elector) run(ctx context.Context) (overdue func(), err error) {
	e.lock.runs.Beat(e.config.Clock.Now())
	for ctx.Err() == nil {
		t := e.compete(ctx)
		e.follower.Ear.Close()
		if t != nil {
			err = e.lead(ctx, t)
		}
	}
	e.candidate.Abandon()
	e.watch.Close()
	e.lock.runs.Stop()
	e.lock.show(view{})
	return e.overdue, err
}

// compete polls the lock until the lock can be claimed, and then claims it. It returns nil once ctx has ended.
func (e *elector) compete(ctx context.Context) *elect.Term {
	for ctx.Err() == nil {
		began := e.config.Clock.Now()
		step := e.candidate.Try(ctx, elect.All, cmp.Or(e.config.Poll, e.config.Look))
		e.watch.Tried(step)
		if step.Seen != nil {
			e.notice(step.Seen[0], began)
		}
		switch {
		case step.Err != nil:
			e.lock.runs.Fail(step.Err)
		case !step.CoolingDown || e.lock.view.Load().other.LeaseRecord != nil: // otherwise this candidate could not confirm its claim, and there is no leader
			e.lock.runs.Beat(began)
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
		e.follower.Rest(ctx, step, began, e.last)
	}
	return nil
}

// notice publishes which other process leads, if any. It emits an event if the previous leader no longer leads, if
// there is a new leader, or if the leader has announced that it is leaving.
func (e *elector) notice(s elect.LockView, began elect.Instant) {
	before, o := e.lock.view.Load().other, s.Observation
	if s.FreeIn <= 0 || o.Token == e.last || !leads(o) {
		o = table.Observation{}
	}
	e.lock.show(view{other: o, looked: began})
	if before.LeaseRecord != nil && before.Token != o.Token {
		e.log.Info("leader gone", "leader", before.Holder(), "token", before.Token)
		e.tell(LeaderGone, e.config.Clock.Now(), elect.Event{Token: before.Token, Leader: before})
	}
	if o.LeaseRecord == nil {
		return
	}
	if before.Token != o.Token {
		e.log.Info("leader seen", "leader", o.Holder(), "value", o.LeaseRecord.Value, "token", o.Token)
		e.tell(LeaderSeen, e.config.Clock.Now(), elect.Event{Token: o.Token, Leader: o})
	}
	if o.Leaving() && !(before.Token == o.Token && before.Leaving()) {
		e.tell(Leaving, e.config.Clock.Now(), elect.Event{Token: o.Token, Leader: o})
	}
}

// notLost returns err, or nil if the lock was superseded, because nothing is then left to release.
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

func (e *elector) tell(kind EventKind, at elect.Instant, ev elect.Event) {
	e.observer.Put(int(kind), at.Time(), ev)
}

// rest makes an elector leave the lock to other candidates after its leader function has ended a term by returning.
// Each rest is longer than the one before, up to three leases. Unlike the cool-down after Yield, a rest does not end
// when another candidate holds the lock. Otherwise, two processes whose leader functions fail would pass the lock back
// and forth without a pause, and a healthy candidate would rarely get the lock.
type rest struct {
	began  elect.Instant // of the current term
	length time.Duration // of the last rest; zero if there was none since the last term of three leases or more
}

// over is called at the end of each term. A term of three leases or more resets the length of the rests.
func (r *rest) over(at elect.Instant, lease time.Duration) {
	if at.Ran(r.began) >= 3*lease {
		r.length = 0
	}
}

// restNow begins a rest. A leader function that has returned after less than three leases has probably failed. In that
// case, restNow logs a warning, but only for the first of several rests in a row.
func (e *elector) restNow() {
	r, lease, level := &e.rest, e.config.Lease, slog.LevelDebug
	if r.length == 0 && e.config.Clock.Now().Ran(r.began) < 3*lease {
		level = slog.LevelWarn
	}
	r.length = min(max(2*r.length, lease/3), 3*lease)
	e.candidate.Rest(r.length)
	e.log.Log(context.Background(), level, "the leader function returned before its context ended, so the lock was given up", "token", e.last, "pause", rounded(r.length))
}
