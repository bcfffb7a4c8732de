package spindle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// elector is the loop of one Run: a candidate until it is elected, a holder until its term ends, and
// again. Its state belongs to its one goroutine. Others see the lock's term, and events.
type elector struct {
	*Lock
	log        *slog.Logger
	events     *loop.Mailbox // nil: no observer
	candidate  elect.Candidate
	problems   loop.Problems
	watch      *telemetry.Watch
	term       *telemetry.Term // its last
	last       table.Token     // of that
	publishing sync.Mutex      // held while a term is said to be leaving, or over: in that order

	gracePeriod <-chan struct{}   // closed when the time to stop is up
	overdue     []<-chan struct{} // the caller's code that did not return in time
}

func newElector(l *Lock) *elector {
	e := &elector{Lock: l, log: l.config.Log.With("table", l.spanner.Table, "lock", l.name, "id", l.config.ID), watch: l.about.Watch()}
	e.problems.Log, e.problems.What = e.log, "compete for the lock"
	e.candidate = l.config.Candidate(e.watch.Table(l.table), l.name)
	e.candidate.LeaseRecord.Kind = table.Elector
	e.events = loop.NewMailbox(l.config.Observe)
	return e
}

func (e *elector) run(ctx context.Context) error {
	gracePeriod := e.config.Lease
	if e.config.Handover {
		gracePeriod *= 2 // an announcement may take a lease
	}
	late, forget := loop.GracePeriod(ctx, e.config.Clock, gracePeriod)
	defer forget()
	e.gracePeriod = late
	e.pulse.Beat(e.config.Clock.Now())
	var err error
	for ctx.Err() == nil && err == nil {
		if t := e.compete(ctx); t != nil {
			err = e.lead(ctx, t)
		}
	}
	e.watch.Close()
	e.pulse.Stop()
	e.show(view{})
	observing, overdue := e.events.Drain(e.config.Lease, e.config.Clock)
	if overdue != nil {
		e.overdue = append(e.overdue, observing)
		err = errors.Join(err, overdue)
	}
	return err
}

// compete looks at the lock until it can be claimed, and claims it. It returns nil once ctx has ended.
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
			e.pulse.Fail(step.Err)
		case !step.CoolingDown || e.view.Load().other.LeaseRecord != nil: // else it could not confirm, and nobody leads
			e.pulse.Beat(began)
		}
		switch {
		case step.Term != nil:
			e.problems.Clear()
			return step.Term
		case ctx.Err() != nil:
			return nil
		case step.Err != nil:
			e.problems.Note(step.Err)
		case step.CoolingDown: // why was said
		default:
			e.problems.Clear()
		}
		elect.Sleep(ctx, e.config.Clock, step.Pause)
	}
	return nil
}

// notice publishes whether another leads, and sends an event if that is a new leader, or the last one leads no more.
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

// lead keeps a term until it is lost or ctx ends. It returns once the guarded work has returned, with an
// error only if a stop could not be completed.
func (e *elector) lead(ctx context.Context, t *elect.Term) error {
	if ctx.Err() != nil {
		return notLost(e.release(ctx, t, context.Cause(ctx)))
	}
	s, stop := newStepDown(), make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	e.begin(t, s)
	e.work(t, s)
	others.Go(func() { e.leave(ctx, t, s, stop) })
	if e.config.Handover {
		others.Go(func() { e.watchRequests(t, s) })
	}
	if reason := t.Renew(e.config.Heartbeat, stop); reason != nil {
		t.End(reason)
		e.lost(t, reason)
		s.end(reason)
		if errors.Is(reason, ErrSuperseded) {
			e.candidate.Yield(t, true, "") // who took it away wants another
		}
		return e.awaitWork(s.returned)
	}
	e.lost(t, s.why)
	if err := e.awaitWork(s.returned); err != nil {
		t.End(s.why) // and the lock is left to expire
		s.end(err)
		return err
	}
	err := e.release(ctx, t, s.why)
	s.end(err)
	if ctx.Err() != nil {
		return notLost(err)
	}
	e.candidate.Yield(t, err == nil, s.by)
	return nil
}

// notLost is nil for a lock that was not to be released any more.
func notLost(err error) error {
	if errors.Is(err, ErrSuperseded) {
		return nil
	}
	return err
}

func (e *elector) begin(t *elect.Term, s *stepDown) {
	token := t.Token()
	t.Jeopardy = func(err error) {
		e.log.Warn("jeopardy: a heartbeat failed", "token", token, "left", rounded(t.Left()), "err", err)
		e.emit(Jeopardy, elect.Event{Token: token, Err: e.wrap("hold", err), Deadline: e.deadline(t)})
	}
	t.Safe = func() {
		e.log.Info("safe: a heartbeat was acknowledged again", "token", token)
		e.emit(Safe, elect.Event{Token: token, Deadline: e.deadline(t)})
	}
	e.term = e.watch.Elected(t)
	e.show(view{term: t, stepDown: s})
	e.log.Info("elected", "token", token)
	e.emit(Elected, elect.Event{Token: token, Deadline: e.deadline(t)})
}

func (e *elector) deadline(t *elect.Term) time.Time {
	return e.config.Clock.Now().Time().Add(t.Left())
}

// work starts the leader function.
func (e *elector) work(t *elect.Term, s *stepDown) {
	if e.config.Lead == nil {
		close(s.returned)
		return
	}
	go func() {
		defer close(s.returned)
		e.config.Lead(t.Context(), t.Token())
		if t.Context().Err() == nil && !e.config.StepDownOnReturn && !s.wanted() {
			e.log.Warn("the leader function has returned, and its term goes on: nobody works under the lock", "token", t.Token())
		}
	}()
}

// lost publishes that the term is over: to HasLock and Seen, the log, the observer and telemetry.
func (e *elector) lost(t *elect.Term, reason error) {
	now := e.config.Clock.Now()
	e.publishing.Lock()
	defer e.publishing.Unlock()
	e.pulse.Beat(now)
	e.show(view{})
	e.last = t.Token()
	level, given := slog.LevelWarn, telemetry.Stopped
	switch {
	case errors.Is(reason, ErrSteppedDown):
		level, given = slog.LevelInfo, telemetry.SteppedDown
	case errors.Is(reason, ErrStopped):
		level = slog.LevelInfo
	}
	e.log.Log(context.Background(), level, "lost", "token", t.Token(), "reason", reason)
	e.events.Put(int(Lost), now.Time(), elect.Event{Token: t.Token(), Err: reason})
	e.term.Over(telemetry.ReasonOf(reason, given))
}

func (e *elector) release(ctx context.Context, t *elect.Term, why error) error {
	err := t.Release(context.WithoutCancel(ctx), why)
	if err == nil {
		e.log.Info("released", "token", t.Token())
	} else if ctx.Err() == nil {
		e.log.Warn("stepped down, and the lock could not be released", "token", t.Token(), "err", err)
	}
	return err
}

var errOverdue = errors.New("the leader function has not returned since its term ended, and this candidate waits for it")

// awaitWork waits for the guarded work to return after its term, so that two terms never run side by side: until a lease
// after ctx has ended.
func (e *elector) awaitWork(returned <-chan struct{}) error {
	if !closed(returned) {
		e.pulse.Fail(errOverdue)
	}
	if e.awaitReturn(returned, nil, "the leader function has not returned since its term ended: this candidate does not compete until it does") {
		return nil
	}
	e.overdue = append(e.overdue, returned)
	return loop.Overdue("the leader function", e.config.Lease)
}

// awaitReturn waits for the guarded work to return, and reports whether it did before the time to stop was up, or over was
// closed. It logs if that takes long, since nobody else can lead, or this candidate can't, meanwhile.
func (e *elector) awaitReturn(returned, over <-chan struct{}, why string) bool {
	for wait := e.config.Lease; ; wait *= 2 {
		remind := e.config.Clock.Timer(wait)
		select {
		case <-returned:
			remind.Stop()
			return true
		case <-remind.C:
			e.log.Warn(why, "waited", rounded(wait))
			continue
		case <-e.gracePeriod:
			remind.Stop()
		case <-over:
			remind.Stop()
		}
		return closed(returned) // both: it was in time
	}
}

// rounded is a duration for people.
func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// awaitOverdue waits, however long, for what was overdue: two Runs must not call the same code at once.
func (e *elector) awaitOverdue() {
	for _, returned := range e.overdue {
		<-returned
	}
}

func (e *elector) emit(kind EventKind, ev elect.Event) {
	e.events.Put(int(kind), e.config.Clock.Now().Time(), ev)
}
