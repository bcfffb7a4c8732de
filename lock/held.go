package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// held is a term whose keeper sends heartbeats until the locks are released or lost.
type held struct {
	*contender
	by     *waiter // the waiter that acquired the locks
	term   *elect.Term
	keeper *elect.Keeper
	since  elect.Instant
	lost   chan struct{}
	left   atomic.Bool // the release has begun
	record table.Due   // what the release records as done; without a key, nothing
	seen   *telemetry.Term
	book   notify.Book
	blocks sync.Once // guards the warning that other goroutines are waiting although the lock is lost
	said   sync.Once // guards the warning that nothing can unlock the lock any more
}

var errGivenBack = errors.New("it was given back")

// keep starts to send heartbeats.
func (w *waiter) keep(t *elect.Term) *held {
	w.log(t).Debug("acquired")
	h := &held{contender: w.contender, by: w, term: t, since: w.config.Clock.Now(), lost: make(chan struct{}), seen: w.watch.Elected(t), book: w.Book(t)}
	h.keeper = w.config.Keeper(t, h.notify)
	h.keeper.Start()
	return h
}

func (h *held) notify(e elect.TermEvent) {
	switch e.What {
	case elect.Beat:
		h.warnIfForgotten()
	case elect.Lost:
		h.book.Free(false)
		h.lose(e.Err)
	}
}

// lose publishes that the locks must not be used any more. Only the first call has an effect.
func (h *held) lose(reason error) {
	if h.seen.Over(telemetry.ReasonOf(reason, telemetry.Expired)) {
		h.log(h.term).Warn("lost", "reason", reason)
		close(h.lost)
		h.config.Clock.AfterFunc(h.config.Lease, h.overdue)
	}
}

// stalled handles work that has made no progress. The locks stay held until the work returns. If it does not return
// within a lease, heartbeats end and the locks expire.
func (h *held) stalled(reason error) {
	if h.term.Stall(reason) {
		h.about.Stalled()
		h.lose(reason)
	}
}

func (h *held) isPermit() bool { return h.by.Ticket.Slots > 0 }

// isLost reports whether the lock was lost or its work has stalled, and the lock has not been unlocked since.
func (h *held) isLost() bool { return !h.left.Load() && h.term.Context().Err() != nil }

func (h *held) age() time.Duration {
	return h.config.Clock.Now().Since(h.since).Round(time.Millisecond)
}

// overdue calls h.wanted if other goroutines are waiting for a lock that was lost but not unlocked. It first runs one
// lease after the loss, which gives the work time to unlock the lock. After that, it runs once per lease.
func (h *held) overdue() {
	if h.by.queue.holds.Load() != h {
		return
	}
	if h.by.queue.behind() > 0 {
		h.wanted()
	}
	if h.isLost() {
		h.config.Clock.AfterFunc(h.config.Lease, h.overdue)
	}
}

// wanted is called when another goroutine of this process wants the lock. If the lock was lost, wanted logs a warning,
// once. But if nothing can unlock the lock any more, wanted lets the other goroutines acquire it instead.
func (h *held) wanted() {
	switch {
	case !h.isLost():
	case !h.by.garbage.Load():
		h.blocks.Do(func() {
			h.log(h.term).Warn("the lock was lost but not unlocked; until it is unlocked or Do returns, other goroutines of this process can't acquire it, even if other processes can")
		})
	case h.leave():
		_ = h.keeper.Stop()
		h.by.leave()
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
	h.term.CancelWork(errGivenBack)
	return true
}

const (
	// longestGiveBack limits how long a release by Do, or inside a Do, may take, even if ctx has ended. A lock that
	// can't be released in this time is left to expire.
	longestGiveBack = 10 * time.Second

	// lateGiveBack is how long a release may take if its ctx has already ended, as in a deferred Unlock during a
	// shutdown. Without this extra time, the lock would not be released, and other processes would have to wait for the
	// lease to expire.
	lateGiveBack = 3 * time.Second
)

// unlock releases the locks, and makes way for the next goroutine of the process. If a goroutine is waiting, unlock
// puts a new ticket for it at the end of the queues.
func (h *held) unlock(ctx context.Context) error {
	if h == nil || !h.leave() {
		return ErrNotHeld
	}
	var again []table.Write
	if h.by.front && h.by.queue.behind() > 0 {
		again = h.by.GoToTheEnd(h.by.queue.id(h.config.Clock))
	}
	err := h.giveBack(ctx, again...)
	h.by.leave()
	if h.by.Own.Nonce != "" { // no goroutine waits any more
		go h.by.Forget()
	}
	return err
}

// giveBack releases the locks, and makes the other writes in the same commit. Locks that it can't release within the
// time limit (see last) are left to expire.
func (h *held) giveBack(ctx context.Context, also ...table.Write) error {
	ctx, cancel := h.last(ctx)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- h.keeper.Stop() }()
	select {
	case reason := <-stopped:
		if reason != nil {
			return fmt.Errorf("%w: it was lost before: %w", ErrNotHeld, reason)
		}
	case <-ctx.Done(): // a heartbeat hangs, even though its context is canceled
		h.log(h.term).Warn("left to expire", "reason", ctx.Err())
		go func() {
			h.book.Free(false)
			if <-stopped == nil {
				h.term.End(errGivenBack)
				h.seen.Over(telemetry.Released)
			}
		}()
		return fmt.Errorf("%w; the lock is left to expire", ctx.Err())
	}
	err := h.release(ctx, h.term, h.record, also...)
	h.book.Free(h.record.Key != "") // also if the outcome is unknown
	h.seen.Over(telemetry.ReasonOf(err, telemetry.Released))
	reason := h.term.Stalled()
	if errors.Is(err, table.ErrSuperseded) {
		reason = err
	}
	if reason != nil {
		return fmt.Errorf("%w: it was lost before: %w", ErrNotHeld, reason)
	}
	return err
}

// last returns a context that limits how long the release of the locks may take. Inside a Do of the same value, the
// limit is the deadline of ctx or longestGiveBack, whichever is sooner. The end of ctx does not count there, because Do
// cancels ctx when the lock is lost. If the deadline has passed, or if ctx has ended outside such a Do, the limit is
// lateGiveBack. Otherwise, the result is ctx itself.
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

// release releases the locks of a term for which no keeper is running. It logs the outcome, because it may run in
// the background, where no caller handles the error.
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

// log returns a logger for the term. It uses the same keys as an elector, but a term with several locks has the key
// "locks" instead of "lock".
func (s *contender) log(t *elect.Term) *slog.Logger {
	names := slog.Any("locks", t.Names())
	if len(t.Names()) == 1 {
		names = slog.String("lock", t.Names()[0])
	}
	return s.config.Log.With("table", s.about.Table, names, "id", s.config.ID, "token", t.Token())
}

// fence returns the fence for the locks. If the fence finds that the token is no longer valid, it ends the term.
func (h *held) fence() fence.Fence {
	f := h.contender.fence(h.token(), h.term.Names()...)
	f.Gone = func() { h.term.Supersede(h.config.Clock.Now()) }
	return f
}

// forget records that a value has become garbage. If the value is still locked, nothing can unlock it any more. This
// can happen if a goroutine returns early, or if its panic is recovered. forget does not release the lock, because a
// program may rely on holding it until the program ends. The runtime calls forget in a separate goroutine.
func forget(garbage *atomic.Bool) { garbage.Store(true) }

var ownFunctions = reflect.TypeFor[Mutex]().PkgPath() + "."

// caller returns the line of the program that began to wait: the innermost line outside this package.
func (w *waiter) caller() string {
	for frames := runtime.CallersFrames(w.callers); ; {
		f, more := frames.Next()
		own := strings.HasPrefix(f.Function, ownFunctions) && !strings.HasSuffix(f.File, "_test.go")
		if !own || !more {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
}

// warnIfForgotten warns, once, if nothing can unlock the value any more. It is called after each heartbeat.
func (h *held) warnIfForgotten() {
	if h.by.garbage.Load() && !h.left.Load() {
		h.said.Do(func() {
			h.log(h.term).Warn("a value was locked and then dropped without being unlocked; nothing can unlock it any more, so the lock stays held until this process ends or an operator releases it",
				"held", h.age(), "locked_at", h.by.caller())
		})
	}
}
