package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// held is a term that sends its own heartbeats until it is released or lost.
type held struct {
	*contender
	term   *elect.Term
	keeper *elect.Keeper
	lost   chan struct{}
	over   context.Context         // ends when the lock is lost or its release begins; the cause says which
	end    context.CancelCauseFunc // of over
	left   atomic.Bool             // its release has begun
	late   atomic.Bool             // its release took too long, so it is left to expire
	seen   *telemetry.Term
	blocks sync.Once // guards the warning that other goroutines are waiting although the lock is lost
	origin
}

var errGivenBack = errors.New("it was given back")

// keep starts to send heartbeats. The flag garbage is set when nothing can release the locks any more, and next then makes
// way for the next goroutine of the process.
func (s *contender) keep(t *elect.Term, w *telemetry.Watch, garbage *atomic.Bool, next func()) *held {
	s.log(t).Debug("acquired")
	h := &held{contender: s, term: t, lost: make(chan struct{}), seen: w.Elected(t), origin: newOrigin(s.config.Clock, garbage, next)}
	h.over, h.end = context.WithCancelCause(t.Context())
	h.keeper = s.config.Keeper(t, h.notify)
	h.keeper.Start()
	return h
}

func (h *held) notify(e elect.TermEvent) {
	if e.What == elect.Beat {
		h.warnIfForgotten()
	}
	if e.What != elect.Lost {
		return
	}
	h.seen.Over(telemetry.ReasonOf(e.Err, telemetry.Expired))
	if !h.late.Load() {
		h.log(h.term).Warn("lost", "reason", e.Err)
		close(h.lost)
		h.config.Clock.AfterFunc(h.config.Lease, h.overdue)
	}
}

// isLost reports whether the lock was lost and has not been unlocked since.
func (h *held) isLost() bool { return !h.left.Load() && h.term.Over().Err() != nil }

// how describes, for errors, in what way the value has the lock.
func (h *held) how() string {
	if h.isLost() {
		return "lost but not unlocked"
	}
	return "held"
}

// overdue runs one lease duration after the lock was lost, and again each lease until it is unlocked. The work has had
// time to unlock it, because its context ended at the loss.
func (h *held) overdue() {
	now, behind := inTurn(h.queue())
	if now != h {
		return
	}
	if behind > 0 {
		h.wanted()
	}
	if h.isLost() {
		h.config.Clock.AfterFunc(h.config.Lease, h.overdue)
	}
}

// wanted is called when other goroutines of this process want a lock that this one may have lost.
func (h *held) wanted() {
	if h.garbage.Load() {
		h.makeWay()
	} else {
		h.warnOfWaiting()
	}
}

// warnOfWaiting logs a warning, once, if the lock was lost and has not been unlocked. It is called when other
// goroutines of this process are waiting for the lock.
func (h *held) warnOfWaiting() {
	if h.isLost() {
		h.blocks.Do(func() {
			h.log(h.term).Warn("lost but not unlocked; other processes can acquire the lock, but other goroutines of this process have to wait until it is unlocked or Do returns")
		})
	}
}

func (h *held) token() spindle.Token {
	if h.left.Load() || !h.term.Held() {
		return 0
	}
	return spindle.Token(h.term.Token())
}

// remaining returns how long the locks stay held if no further heartbeat is acknowledged.
func (h *held) remaining() time.Duration {
	if h.left.Load() {
		return 0
	}
	return h.term.Left()
}

// leave begins the release of the locks. It returns true only for its first caller, which must then release them.
func (h *held) leave() bool {
	if !h.left.CompareAndSwap(false, true) {
		return false
	}
	h.end(errGivenBack)
	return true
}

const (
	// longestGiveBack limits how long Do spends on releasing its lock, even if its ctx has ended. A lock that can't be
	// released in this time is left to expire.
	longestGiveBack = 10 * time.Second

	// lateGiveBack is how long a release may take if its ctx has already ended, as in a deferred Unlock during a
	// shutdown. Without this extra time, the lock would not be released, and other processes would have to wait for the
	// lease to expire.
	lateGiveBack = 3 * time.Second
)

// giveBack releases the locks, records done if it has a key, and makes the other writes in the same commit. Locks that it can't release within the time limit (see
// last) are left to expire.
func (h *held) giveBack(ctx context.Context, done table.Due, also ...table.Write) error {
	ctx, cancel := h.last(ctx)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- h.keeper.Stop() }()
	select {
	case reason := <-stopped:
		if reason != nil {
			return fmt.Errorf("%w: it was lost before: %w", ErrNotHeld, reason)
		}
	case <-ctx.Done(): // a heartbeat hangs
		h.late.Store(true)
		h.log(h.term).Warn("left to expire", "reason", ctx.Err())
		go func() { <-stopped; h.term.End(errGivenBack); h.seen.Over(telemetry.Released) }()
		return fmt.Errorf("%w; the lock is left to expire", ctx.Err())
	}
	err := h.release(ctx, h.term, done, also...)
	h.seen.Over(telemetry.ReasonOf(err, telemetry.Released))
	if errors.Is(err, table.ErrSuperseded) {
		return fmt.Errorf("%w: it was lost before: %w", ErrNotHeld, err)
	}
	return err
}

// last returns the context that limits how long the release of the locks may take. Inside a Do, only the deadline of
// ctx counts, because ctx has already ended if the lock was lost. If any other ctx has already ended, the limit is
// lateGiveBack.
func (h *held) last(ctx context.Context) (context.Context, context.CancelFunc) {
	on := context.WithoutCancel(ctx)
	deadline, limited := ctx.Deadline()
	switch {
	case limited && time.Until(deadline) <= 0, ctx.Err() != nil && h.work(ctx) == nil:
		return context.WithTimeout(on, lateGiveBack)
	case h.work(ctx) == nil:
		return ctx, func() {}
	case limited && time.Until(deadline) < longestGiveBack:
		return context.WithDeadline(on, deadline)
	}
	return context.WithTimeout(on, longestGiveBack)
}

// release releases the locks of a term whose keeper has stopped. It logs the outcome, because it may run in the
// background without a caller that handles the error.
func (s *contender) release(ctx context.Context, t *elect.Term, done table.Due, also ...table.Write) (err error) {
	if done.Key != "" {
		err = t.Finish(ctx, errGivenBack, done, s.config.ID, also...)
	} else {
		err = t.Release(ctx, errGivenBack, also...)
	}
	switch {
	case err == nil:
		s.log(t).Debug("released")
	case errors.Is(err, table.ErrSuperseded):
		s.log(t).Warn("lost", "reason", err)
	default:
		s.log(t).Warn("left to expire", "reason", err)
	}
	return err
}

// log returns a logger for the term. Its keys are the same as the elector's, except that a term with several locks has
// the key "locks" instead of "lock".
func (s *contender) log(t *elect.Term) *slog.Logger {
	names := slog.Any("locks", t.Names())
	if len(t.Names()) == 1 {
		names = slog.String("lock", t.Names()[0])
	}
	return s.config.Log.With("table", s.about.Table, names, "id", s.config.ID, "token", t.Token())
}
