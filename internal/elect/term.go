package elect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// ErrExpired is the reason for the end of a term whose deadline has passed by the local clock.
var ErrExpired = errors.New("the lease expired: no heartbeat was acknowledged in time")

// ErrStalled is the reason for the end of a term whose work has made no progress for too long.
var ErrStalled = errors.New("the work stalled")

// Term is one period of holding locks, from the confirmation to the release or loss.
type Term struct {
	life
	table table.Table
	token table.Token
	names []string

	ignoreFor time.Duration // how long the term ignores preferences
	freeRows  bool          // its release leaves free rows
	reclaims  string        // the id that may claim the locks back immediately, or "" if none may
}

// life is the state of a term. A term is held first, then possibly draining, and finally ended. It never returns to an
// earlier phase. Any goroutine can call the methods, because a term's owner, Keeper, fences and deadline timer all
// change the state.
type life struct {
	clock    Clock
	lease    time.Duration
	began    Instant
	over     cancelable              // ends with the term, with the reason as its cause
	work     cancelable              // a child of over
	deadline *time.Timer             // ends the term on time, even if its keeper is blocked
	refused  atomic.Pointer[Instant] // when the term was found to be superseded

	moving   sync.Mutex // locked while the state changes
	standing atomic.Pointer[standing]
}

type cancelable struct {
	context.Context
	cancel context.CancelCauseFunc
}

func within(ctx context.Context) cancelable {
	ctx, cancel := context.WithCancelCause(ctx)
	return cancelable{ctx, cancel}
}

// standing contains the parts of a term's state that change together. It is immutable: each change replaces it with a
// new one.
type standing struct {
	phase        phase
	acknowledged Instant // just before the last acknowledged heartbeat was sent
	failed       error   // why the last heartbeat was not acknowledged, or nil if it was
	stalled      error   // why nobody may act any more, although the locks are still held, or nil
	stalledAt    Instant
}

// phase is the phase that a term has reached.
type phase int

const (
	held     phase = iota // the work continues
	draining              // the work's context is canceled; the locks stay held until it has returned
	ended
)

func newTerm(ctx context.Context, c claimant, token table.Token, sent Instant, ignoreFor time.Duration) *Term {
	t := &Term{table: c.Table, token: token, names: c.names, ignoreFor: ignoreFor, freeRows: c.FreeRows}
	if c.Reclaim {
		t.reclaims = c.ID
	}
	t.begin(ctx, c.Clock, c.LeaseRecord.Lease, sent)
	return t
}

func (t *life) begin(ctx context.Context, clock Clock, lease time.Duration, sent Instant) {
	t.clock, t.lease, t.began = clock, lease, sent
	t.standing.Store(&standing{acknowledged: sent})
	t.over = within(ctx)
	t.work = within(t.over)
	left := t.Left()
	t.moving.Lock() // until the timer is set
	defer t.moving.Unlock()
	t.deadline = clock.AfterFunc(left, func() { t.End(t.standing.Load().expired()) })
}

// Token returns the term's fencing token.
func (t *Term) Token() table.Token { return t.token }

// Names returns the names of its locks.
func (t *Term) Names() []string { return t.names }

// Context returns the work's context. It ends with the term, or earlier if CancelWork or Stall is called. Its cause is
// the reason.
func (t *life) Context() context.Context { return t.work }

// Over returns a context that ends with the term. Its cause is the reason.
func (t *life) Over() context.Context { return t.over }

// Held reports whether the work may act. It returns true until the deadline passes, the term ends for another reason,
// or the work stalls. It still returns true while the term is draining, unless the work has stalled.
func (t *life) Held() bool { return t.Left() > 0 }

// Left returns the time until the deadline. The result is zero or negative once the term has ended or its work has stalled.
func (t *life) Left() time.Duration {
	if t.Stalled() != nil {
		return -1
	}
	return t.lasts()
}

// lasts returns the time until the deadline, even if the work has stalled: for other processes, the locks are still
// held.
func (t *life) lasts() time.Duration { return t.left(t.standing.Load(), t.clock.Now()) }

func (t *life) left(s *standing, now Instant) time.Duration {
	if s.phase == ended {
		return -1
	}
	return Limit(t.lease) - now.Since(s.acknowledged)
}

// Secure reports whether the last heartbeat was acknowledged and more than half of the lease is left.
func (t *life) Secure() bool { return !t.inJeopardy() && t.Left() > t.lease/2 }

// Age returns the time since the last acknowledged heartbeat was sent. Once the term has ended or the work has stalled,
// Age returns a value just above Limit.
func (t *life) Age() time.Duration { return Limit(t.lease) - t.Left() }

// Silence returns how long the machine has run since the last acknowledged heartbeat was sent, even if the term has
// ended.
func (t *life) Silence() time.Duration { return t.clock.Now().Ran(t.standing.Load().acknowledged) }

// inJeopardy reports whether the last heartbeat was not acknowledged, even if the term has ended.
func (t *life) inJeopardy() bool { return t.standing.Load().failed != nil }

// expired returns the error that explains why a term ended at its deadline. If the work had stalled, this is the reason
// that was passed to Stall. Otherwise, it is ErrExpired, with the last heartbeat's error if that heartbeat failed.
func (s *standing) expired() error {
	switch {
	case s.stalled != nil:
		return s.stalled
	case s.failed != nil:
		return fmt.Errorf("%w; the last heartbeat failed: %w", ErrExpired, s.failed)
	}
	return ErrExpired
}

// Limit returns how long a holder may act after sending its last acknowledged request. This is 1% less than the lease,
// in case the holder's clock runs slow. The margin is 20 times the largest correction that ntpd makes to a clock's
// rate.
func Limit(lease time.Duration) time.Duration { return lease - lease/100 }

// CancelWork cancels only the work's context. The term continues, so that the locks stay held until the work has
// returned.
func (t *life) CancelWork(reason error) {
	if t.advance(draining) {
		t.work.cancel(reason)
	}
}

// Stall cancels the work's context because the work makes no progress. After that, nobody may act under the term.
// Heartbeats continue for at most one more lease, so that the locks stay held while the work returns. Stall returns
// false if the term had already ended.
func (t *life) Stall(reason error) bool {
	now := t.clock.Now()
	was := t.move(func(s *standing) bool {
		if s.phase == ended {
			return false
		}
		s.phase, s.stalled, s.stalledAt = draining, reason, now
		return true
	})
	t.work.cancel(reason)
	return was
}

// Stalled returns the reason that was passed to Stall, or nil.
func (t *life) Stalled() error { return t.standing.Load().stalled }

// End ends the term for all goroutines. It does not change the table.
func (t *life) End(reason error) {
	if t.advance(ended) {
		t.deadline.Stop()
		t.over.cancel(reason)
	}
}

// Supersede ends the term because a read has shown that its lease row is gone. The argument at is a time after that
// read.
func (t *life) Supersede(at Instant) {
	t.refused.CompareAndSwap(nil, &at)
	t.End(table.ErrSuperseded)
}

func (t *life) advance(to phase) bool {
	return t.move(func(s *standing) bool {
		was := s.phase
		s.phase = max(was, to)
		return was < to
	})
}

// extend moves the deadline, unless the deadline has passed or the term has ended. A term that has ended must not be
// revived, because its work may already have noticed the end. extend reports whether it moved the deadline and, if so,
// whether the term was in jeopardy.
func (t *life) extend(sent Instant) (was, extended bool) {
	now := t.clock.Now()
	extended = t.move(func(s *standing) bool {
		if t.left(s, now) <= 0 || !t.deadline.Stop() {
			return false
		}
		was, s.acknowledged, s.failed = s.failed != nil, sent, nil
		t.deadline.Reset(t.left(s, now))
		return true
	})
	return was, extended
}

// endanger records why a heartbeat was not acknowledged. It reports whether the term was already in jeopardy, and
// whether the term continues.
func (t *life) endanger(failed error) (was, goesOn bool) {
	goesOn = t.move(func(s *standing) bool {
		was, s.failed = s.failed != nil, failed
		return s.phase != ended
	})
	return was, goesOn
}

// move changes the term's state. Its callers cancel contexts only afterwards, so a goroutine that sees one of the
// term's contexts end also sees the new state. The given function must not read the clock. A simulation may stop a
// goroutine that reads the clock, and while it is stopped, other goroutines could not lock the mutex.
func (t *life) move(to func(*standing) bool) bool {
	t.moving.Lock()
	defer t.moving.Unlock()
	s := *t.standing.Load()
	moved := to(&s)
	t.standing.Store(&s)
	return moved
}
