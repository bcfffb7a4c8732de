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

// ErrExpired is the reason for a term that ended by itself, at its deadline by the local clock.
var ErrExpired = errors.New("the lease expired: no heartbeat was acknowledged in time")

// Term is one period of holding locks, from the confirmation to the release or loss. A term is held first, then
// possibly draining, and finally ended. It never returns to an earlier phase. Any goroutine can read the state of a
// term. Only the term's owner changes the state, or a Keeper or a fence on the owner's behalf.
type Term struct {
	table table.Table
	clock Clock
	token table.Token
	names []string
	lease time.Duration

	began     Instant
	ignoreFor time.Duration // how long the term ignores preferences
	freeRows  bool          // its release leaves free rows
	reclaims  string        // the id that may claim the locks back immediately, or "" if none may

	over     cancelable              // ends with the term, with the reason as its cause
	work     cancelable              // a child of over
	deadline *time.Timer             // ends the term on time, even if its keeper is blocked
	refused  atomic.Pointer[Instant] // when the term was found to be superseded

	moving   sync.Mutex // held while the state changes
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

// standing is the state of a term. It is immutable, and each change replaces it with a new one.
type standing struct {
	phase        phase
	acknowledged Instant // the instant before the last acknowledged heartbeat was sent
	failed       error   // why the last heartbeat was not acknowledged, or nil if it was
}

// phase is the phase that a term has reached.
type phase int

const (
	held     phase = iota // the work continues
	draining              // the work's context is canceled; the locks stay held until it has returned
	ended
)

func newTerm(ctx context.Context, c *Candidate, token table.Token, sent Instant, names []string, ignoreFor time.Duration) *Term {
	t := &Term{table: c.Table, clock: c.Clock, token: token, names: names, lease: c.LeaseRecord.Lease, began: sent, ignoreFor: ignoreFor, freeRows: c.FreeRows}
	if c.Reclaim {
		t.reclaims = c.ID
	}
	t.standing.Store(&standing{acknowledged: sent})
	t.over = within(ctx)
	t.work = within(t.over)
	left := t.Left()
	t.moving.Lock() // until the timer is set
	defer t.moving.Unlock()
	t.deadline = c.Clock.AfterFunc(left, func() { t.End(t.expired()) })
	return t
}

// Token returns the term's fencing token.
func (t *Term) Token() table.Token { return t.token }

// Names returns the names of its locks.
func (t *Term) Names() []string { return t.names }

// Context returns the work's context. It ends with the term, or at CancelWork, and its cause is the reason.
func (t *Term) Context() context.Context { return t.work }

// Over returns a context that ends with the term. Its cause is the reason.
func (t *Term) Over() context.Context { return t.over }

// Held reports whether the deadline has not passed and nothing else has ended the term. A draining term is held.
func (t *Term) Held() bool { return t.Left() > 0 }

// Left returns the time until the deadline. The result is zero or negative once the term has ended.
func (t *Term) Left() time.Duration { return t.left(t.standing.Load(), t.clock.Now()) }

func (t *Term) left(s *standing, now Instant) time.Duration {
	if s.phase == ended {
		return -1
	}
	return t.limit() - now.Since(s.acknowledged)
}

// Age returns the time since the last acknowledged heartbeat was sent.
func (t *Term) Age() time.Duration { return t.limit() - t.Left() }

// Silence returns how long the machine has run since the last acknowledged heartbeat was sent, even if the term has
// ended.
func (t *Term) Silence() time.Duration { return t.clock.Now().Ran(t.standing.Load().acknowledged) }

// kept returns how long heartbeats have been acknowledged in this term, even if it has ended.
func (t *Term) kept() time.Duration { return t.standing.Load().acknowledged.Since(t.began) }

// inJeopardy reports whether the last heartbeat was not acknowledged, even if the term has ended.
func (t *Term) inJeopardy() bool { return t.standing.Load().failed != nil }

// expired returns the reason for a term that ended at its deadline: ErrExpired, and why the last heartbeat failed.
func (t *Term) expired() error {
	if failed := t.standing.Load().failed; failed != nil {
		return fmt.Errorf("%w; the last heartbeat failed: %w", ErrExpired, failed)
	}
	return ErrExpired
}

func (t *Term) limit() time.Duration { return Limit(t.lease) }

// Limit returns how long a holder may act after sending its last acknowledged request. This is 1 % less than the lease,
// in case the holder's clock runs slow. The margin is 20 times the largest correction that ntpd makes to a clock's
// rate.
func Limit(lease time.Duration) time.Duration { return lease - lease/100 }

// CancelWork cancels only the work's context. The locks stay held until the work has returned.
func (t *Term) CancelWork(reason error) {
	if t.advance(draining) {
		t.work.cancel(reason)
	}
}

// End ends the term for all goroutines. It leaves the locks in the table as they are.
func (t *Term) End(reason error) {
	if t.advance(ended) {
		t.deadline.Stop()
		t.over.cancel(reason)
	}
}

// Supersede ends the term because a read has shown, at some time after the given instant, that its lease row is gone. Any
// goroutine may call it.
func (t *Term) Supersede(at Instant) {
	t.refused.CompareAndSwap(nil, &at)
	t.End(table.ErrSuperseded)
}

func (t *Term) advance(to phase) bool {
	return t.move(func(s *standing) bool {
		was := s.phase
		s.phase = max(was, to)
		return was < to
	})
}

// extend moves the deadline, unless the deadline has already passed. A term that has ended must not be revived, because
// its work may already have noticed the end. extend reports whether the term was in jeopardy, and whether the deadline
// was moved.
func (t *Term) extend(sent Instant) (was, extended bool) {
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
func (t *Term) endanger(failed error) (was, goesOn bool) {
	goesOn = t.move(func(s *standing) bool {
		was, s.failed = s.failed != nil, failed
		return s.phase != ended
	})
	return was, goesOn
}

// move changes the term's state. A goroutine that sees one of the term's contexts end also sees the new state. The
// function passed to move must not read the clock, because the machine might be suspended in the middle of the read,
// while other goroutines wait for the mutex.
func (t *Term) move(to func(*standing) bool) bool {
	t.moving.Lock()
	defer t.moving.Unlock()
	s := *t.standing.Load()
	moved := to(&s)
	t.standing.Store(&s)
	return moved
}
