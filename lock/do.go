package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

// ErrLost reports that a lock was lost, or that other code unlocked it, while Do ran its function. The cause of the
// function's context wraps ErrLost. After a loss, it also wraps the reason: spindle.ErrExpired, spindle.ErrSuperseded
// or spindle.ErrStalled.
var ErrLost = errors.New("the lock was lost")

// Locker is the argument of Do. It is a Mutex, a Set, a Semaphore, or a type that embeds one of them.
type Locker interface {
	take(ctx context.Context, try bool) (*work, error) // nil if it would have to wait
}

// Do acquires the lock, or a permit of a semaphore, and runs fn. It releases the lock when fn returns, even if fn
// panics. The context of fn ends when ctx ends. It also ends, with a cause that wraps ErrLost, as soon as the lock is
// lost or other code unlocks it.
//
// Do returns fn's error. If the lock was no longer held when fn returned, Do joins ErrNotHeld to that error, whether or
// not fn noticed the loss. If Do can't release the lock, it joins the reason, and the lock is left to expire.
//
// The context of fn, and every context derived from it, identifies the locks that Do holds. With such a context, the
// lock's Apply and ReadWriteTransaction write under the token that this Do acquired, and never under a later one.
// Semaphore.Permit returns this Do's permit. Lock and TryLock return ErrHeld if Do already holds the name, even through
// a different Mutex or Set. Otherwise, Lock would wait for fn while fn waits for Lock.
//
// If fn has not returned one lease duration after the end of its context, Do logs a warning, and another each time the
// wait has doubled.
//
// Do releases only the lock that it acquired itself, never one that another goroutine has acquired since.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error) error {
	own, err := l.take(ctx, false)
	if err != nil {
		return err
	}
	return own.do(ctx, own.watched(fn))
}

// Progress tells the locks that the work is making progress (spindle.WithStall). Pass the context that the function got
// from Do or Once.Do, or a context derived from it. If one Do runs inside another, Progress reports to the locks of
// both calls. Once the function's context has ended, Progress returns the cause, so that a loop can stop. If the
// context does not come from one of these calls, Progress returns an error. It makes no RPC.
func Progress(ctx context.Context) error {
	w := working(ctx)
	if w == nil {
		return loop.ErrNoWork
	}
	err := w.stall.Progress()
	for w = w.within; w != nil; w = w.within {
		_ = w.stall.Progress()
	}
	return err
}

// TryDo is like Do, but runs fn only if the lock, or a permit, is free. It reports whether fn ran.
func TryDo(ctx context.Context, l Locker, fn func(ctx context.Context) error) (bool, error) {
	own, err := l.take(ctx, true)
	if own == nil {
		return false, err
	}
	return true, own.do(ctx, own.watched(fn))
}

func (own *work) do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	own.within = working(ctx)
	own.stall = &loop.Stall{Clock: own.config.Clock, Limit: own.config.Stall, Slow: loop.LogSlow(own.log(own.term).With("locked_at", own.by.caller())), End: own.held.stalled}
	work, end := context.WithCancelCause(context.WithValue(ctx, inDo{}, own))
	own.stall.Work = work
	over := own.term.Context()
	deaf := context.AfterFunc(over, func() { end(fmt.Errorf("%w: %w", ErrLost, context.Cause(over))) })
	returned, done := context.WithCancel(context.WithoutCancel(ctx))
	silent := context.AfterFunc(work, func() { elect.Remind(returned, own.config.Clock, own.config.Lease, own.remind) })
	defer func() {
		silent()
		done()
		deaf()
		end(nil)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestGiveBack)
		defer cancel()
		if gone := own.of.end(last, own.held); gone != nil {
			err = errors.Join(err, gone)
		}
	}()
	return fn(work)
}

// watched wraps fn so that the progress of each call is watched.
func (own *work) watched(fn func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		defer own.stall.Watch()()
		return fn(ctx)
	}
}

// remind logs that fn has not returned since its context ended.
func (own *work) remind(waited time.Duration) {
	why := "the function that Do runs was told to stop but has not returned; the lock stays held until it returns"
	switch {
	case own.left.Load():
		why = "the function that Do runs has not returned since the lock was unlocked by other code; others can hold the lock now"
	case own.isLost():
		why = "the function that Do runs has not returned since the lock was lost; other goroutines of this process can't acquire the lock until the function returns"
	}
	own.log(own.term).Warn(why, "waited", waited, "locked_at", own.by.caller())
}

// work is one call of fn by Do, with the locks that this Do holds.
type work struct {
	*held
	of     *holding // the value that acquired the locks; this reference keeps it from becoming garbage
	permit *Permit  // for a semaphore
	within *work    // the work whose function called this Do, or nil
	stall  *loop.Stall
}

// inDo is the key under which the contexts of Do carry their work.
type inDo struct{}

func working(ctx context.Context) *work {
	w, _ := ctx.Value(inDo{}).(*work)
	return w
}

// work returns the innermost work in ctx that acquired its locks through s, or nil.
func (s *contender) work(ctx context.Context) *work {
	w := working(ctx)
	for w != nil && w.contender != s {
		w = w.within
	}
	return w
}

// ready returns an error if a call can't begin.
func (s *contender) ready(ctx context.Context, step string) error {
	if s.err == nil && ctx.Err() != nil {
		return s.wrap(step, fmt.Errorf("ctx had already ended: %w", table.Ended(ctx)))
	}
	return s.err
}

// ownIn returns which of the names are already held by the calls of Do that ctx comes from. It also returns a
// description of the value that holds the last of these names, such as a mutex.
func (s *contender) ownIn(ctx context.Context, names []string) (own []string, by string) {
	for w := working(ctx); w != nil; w = w.within {
		if w.token() == 0 || w.where() != s.where() {
			continue
		}
		for _, name := range w.term.Names() {
			if slices.Contains(names, name) {
				own, by = append(own, name), w.what
			}
		}
	}
	return own, by
}
