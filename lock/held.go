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

// held is a term that sends its own heartbeats until it is given back or lost.
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
	blocks sync.Once // guards the warning that others are waiting although it is lost
}

var errGivenBack = errors.New("it was given back")

func (s *contender) keep(t *elect.Term, w *telemetry.Watch) *held {
	s.log(t).Debug("acquired")
	h := &held{contender: s, term: t, lost: make(chan struct{}), seen: w.Elected(t)}
	h.over, h.end = context.WithCancelCause(t.Context())
	h.keeper = s.config.Keeper(t, h.notify)
	h.keeper.Start()
	return h
}

func (h *held) notify(e elect.TermEvent) {
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

// isLost reports whether the lock was lost and its turn in this process has not ended.
func (h *held) isLost() bool { return !h.left.Load() && h.term.Over().Err() != nil }

// overdue runs one lease duration after the loss. The context of the work ended at the loss, so the work has had time
// to unlock.
func (h *held) overdue() {
	if now, behind := inTurn(h.queue()); now == h && behind > 0 {
		h.warnOfWaiting()
	}
}

// warnOfWaiting is called if other goroutines of this process are waiting for the lock. It logs a warning, once, if the
// lock is lost and not unlocked.
func (h *held) warnOfWaiting() {
	if h.isLost() {
		h.blocks.Do(func() {
			h.log(h.term).Warn("lost and not unlocked: other goroutines of this process have to wait until it is unlocked or Do returns, but other processes do not")
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

// leave begins to give the locks back. It reports true only to its first caller, which must then give them back.
func (h *held) leave() bool {
	if !h.left.CompareAndSwap(false, true) {
		return false
	}
	h.end(errGivenBack)
	return true
}

const (
	// longestGiveBack is the limit in Do, whose ctx may have ended. A lock that can't be given back in that time
	// expires.
	longestGiveBack = 10 * time.Second

	// lateGiveBack is the limit if ctx had already ended, as in a deferred Unlock during a shutdown. Without this extra
	// time, the lock would be left to expire, and all other processes would have to wait for that.
	lateGiveBack = 3 * time.Second
)

// giveBack frees the locks within ctx, and records done if it has a key. Locks that it can't free are left to expire. A
// ctx of Do ends as soon as its lock is no longer held, so only its deadline counts. If ctx had already ended for
// another reason, giveBack still has lateGiveBack to free them.
func (h *held) giveBack(ctx context.Context, done table.Due) error {
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
	err := h.release(ctx, h.term, done)
	h.seen.Over(telemetry.ReasonOf(err, telemetry.Released))
	if errors.Is(err, table.ErrSuperseded) {
		return fmt.Errorf("%w: it was lost before: %w", ErrNotHeld, err)
	}
	return err
}

// last returns the context within which the locks are given back.
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

// release frees the locks of a term that has no keeper any more. It logs the outcome because it can run in the
// background.
func (s *contender) release(ctx context.Context, t *elect.Term, done table.Due) (err error) {
	if done.Key != "" {
		err = t.Finish(ctx, errGivenBack, done, s.config.ID)
	} else {
		err = t.Release(ctx, errGivenBack)
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

// log returns a logger for the term. Its keys are the same as the elector's, except that a term of several locks has
// "locks" instead of "lock".
func (s *contender) log(t *elect.Term) *slog.Logger {
	names := slog.Any("locks", t.Names())
	if len(t.Names()) == 1 {
		names = slog.String("lock", t.Names()[0])
	}
	return s.config.Log.With("table", s.about.Table, names, "id", s.config.ID, "token", t.Token())
}
