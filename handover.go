package spindle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// stepDown is how a term is given up.
type stepDown struct {
	mu       sync.Mutex
	asked    chan struct{} // closed once somebody wants it
	by       table.Request // once asked: who; "": not by a request
	canceled chan struct{} // closed once the work's context is canceled
	since    elect.Instant // once canceled: when
	why      error         // once canceled: the reason
	over     chan struct{} // closed once the term is over
	err      error         // once over: why the lock was not released because of it

	returned chan struct{} // closed once the work has returned
}

func newStepDown() *stepDown {
	return &stepDown{asked: make(chan struct{}), canceled: make(chan struct{}), over: make(chan struct{}), returned: make(chan struct{})}
}

// ask gives the term up, for the reason of the first call.
func (s *stepDown) ask(by table.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wanted() {
		s.by = by
		close(s.asked)
	}
}

// wanted reports whether somebody has asked.
func (s *stepDown) wanted() bool { return closed(s.asked) }

// hung is how long the machine has run since the work was told to stop and has not returned.
func (s *stepDown) hung(clock elect.Clock) time.Duration {
	if !closed(s.canceled) || closed(s.returned) {
		return 0
	}
	return clock.Now().Ran(s.since)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (s *stepDown) end(err error) {
	s.err = err
	close(s.over)
}

// StepDown gives up the lock, so that another can have it, and returns once it is released. The leader announces that,
// and goes on for a third of the lease and a round trip, in which the followers see it. Then it tells its work to stop
// (the cause of the leader function's ctx is ErrSteppedDown), and releases the lock once the work has returned. This
// Lock still competes. It does not claim the lock again before another has held it, or a third of the lease has
// passed, or a lease if it is not known whether the lock was released.
//
// The error is ErrNotLeader if this Lock does not hold the lock; ErrSuperseded or ErrExpired if it was lost
// meanwhile; that of ctx if it ended; or says that the leader function has not returned within a lease of being
// told, or that the release failed. Stepping down goes on then: it can't be taken back. In the leader function, call
// StepDown with the function's own ctx, and return when it does: it returns ctx's error when the work is to stop.
func (l *Lock) StepDown(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	v := l.view.Load()
	if v.term == nil || !v.term.Held() {
		return l.wrap("step down", ErrNotLeader)
	}
	v.stepDown.ask("")
	if err := l.awaitStepDown(ctx, v.stepDown); err != nil {
		return l.wrap("step down", err)
	}
	return nil
}

func (l *Lock) awaitStepDown(ctx context.Context, s *stepDown) error {
	canceled, late := s.canceled, (<-chan time.Time)(nil)
	for {
		select {
		case <-s.over:
			return s.err
		case <-canceled:
			canceled = nil
			limit := l.config.Clock.Timer(l.config.Lease)
			defer limit.Stop()
			late = limit.C
		case <-late:
			late = nil
			if closed(s.returned) {
				continue // the release takes long, and has an end
			}
			return fmt.Errorf("the leader function has not returned within a lease (%v) of being told to stop: the lock is still held, and will be released once it has", l.config.Lease)
		case <-ctx.Done():
			if closed(s.over) {
				return s.err
			}
			return fmt.Errorf("%w: the lock is still held, and will be released once its work has returned", context.Cause(ctx))
		}
	}
}

// leave waits until the term is to be given up, announces that, and tells the work to stop. It closes stop once the term
// can end: the work has returned, or its time is up.
func (e *elector) leave(ctx context.Context, t *elect.Term, s *stepDown, stop chan<- struct{}) {
	done := s.returned
	if !e.config.StepDownOnReturn {
		done = nil
	}
	announce := true
	select {
	case <-t.Context().Done():
		return // lost
	case <-ctx.Done():
		announce = e.config.Handover
	case <-s.asked:
	case <-done:
		announce = false // the work has returned: going on would help nobody
	}
	s.ask("")
	if announce {
		e.markLeaving(t)
		e.announce(ctx, t, s)
	}
	s.why = ErrSteppedDown
	if ctx.Err() != nil {
		s.why = fmt.Errorf("%w: %w", ErrStopped, context.Cause(ctx))
		t.CancelWork(context.Cause(ctx))
	} else {
		t.CancelWork(ErrSteppedDown)
	}
	s.since = e.config.Clock.Now()
	close(s.canceled)
	e.awaitReturn(s.returned, s.over, "the leader function was told to stop and has not returned: the lock stays held until it does")
	close(stop)
}

// announce returns when the work is to be told to stop. That is at once if the work returns by itself, or if Run's ctx
// ends and WithHandover is not given.
func (e *elector) announce(ctx context.Context, t *elect.Term, s *stepDown) {
	patient, hurry := context.WithCancel(t.Context())
	defer hurry()
	if !e.config.Handover {
		defer context.AfterFunc(ctx, hurry)()
	}
	if !closed(s.returned) { // or the term has gone on without it
		go func() {
			select {
			case <-s.returned:
				hurry()
			case <-patient.Done():
			}
		}()
	}
	t.Announce(patient, nil)
}

// markLeaving tells everybody here that the term is being given up.
func (e *elector) markLeaving(t *elect.Term) {
	now := e.config.Clock.Now()
	e.publishing.Lock()
	defer e.publishing.Unlock()
	v := *e.view.Load()
	if v.term != t {
		return // lost meanwhile
	}
	v.leaving = true
	e.show(v)
	e.log.Info("leaving", "token", t.Token())
	e.events.Put(int(Leaving), now.Time(), elect.Event{Token: t.Token()})
	e.term.Leaving(t.Context())
}

// watchRequests gives the term up if another process asks for that.
func (e *elector) watchRequests(t *elect.Term, s *stepDown) {
	if by := t.Requested(t.Context()); by != "" {
		e.log.Info("asked to hand the lock over", "token", t.Token(), "by", byWhom[by])
		s.ask(by)
	}
}

var byWhom = map[table.Request]string{table.ByOperator: "request", table.ByPreference: "a candidate of higher priority"}
