package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrLost is wrapped by the cause of the context in Do if the lock was lost or another goroutine unlocked it. After a
// loss, the cause also wraps the reason, which is spindle.ErrExpired or spindle.ErrSuperseded.
var ErrLost = errors.New("the lock was lost")

// Locker is the argument of Do. It is a Mutex, a Set, a Semaphore, or a type that embeds one of them.
type Locker interface {
	take(ctx context.Context, try bool) (*work, error) // nil if it would have to wait
}

// Do takes the lock, or a permit of a semaphore, runs fn, and gives the lock back in every case, even if fn panics. The
// context of fn ends when ctx ends. It also ends, with the cause ErrLost, the instant the lock is lost or is unlocked
// by other code. Do returns fn's error. If the lock was no longer held when fn returned, Do joins ErrNotHeld to that
// error, whether or not fn noticed. If the lock could not be given back, Do joins the reason, and the lock is left to
// expire.
//
// The context of fn, and every context derived from it, identifies the locks that are held. With such a context, Apply
// and ReadWriteTransaction of l write under the token of this turn and never under a later one, and Semaphore.Permit
// returns the permit. Lock and TryLock return ErrHeld for a name that is already held, whichever Mutex or Set they
// belong to, because they would wait for fn while fn waits for them.
//
// Do gives back only the lock that it took itself, never one that another goroutine has taken since.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error) error {
	own, err := l.take(ctx, false)
	if err != nil {
		return err
	}
	return own.do(ctx, fn)
}

// TryDo is like Do, but runs fn only if the lock, or a permit, is free. It reports whether fn was run.
func TryDo(ctx context.Context, l Locker, fn func(ctx context.Context) error) (bool, error) {
	own, err := l.take(ctx, true)
	if own == nil {
		return false, err
	}
	return true, own.do(ctx, fn)
}

func (own *work) do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	own.within = working(ctx)
	work, end := context.WithCancelCause(context.WithValue(ctx, inDo{}, own))
	deaf := context.AfterFunc(own.over, func() { end(fmt.Errorf("%w: %w", ErrLost, context.Cause(own.over))) })
	defer func() {
		deaf()
		end(nil)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestGiveBack)
		defer cancel()
		if gone := own.unlock(last); gone != nil {
			err = errors.Join(err, gone)
		}
	}()
	return fn(work)
}

// work is one call of fn in Do, together with what it holds.
type work struct {
	*held
	permit *Permit // for a semaphore
	unlock func(context.Context) error
	within *work // the work whose function called this Do, or nil
}

// inDo is the key under which the contexts of Do carry their work.
type inDo struct{}

func working(ctx context.Context) *work {
	w, _ := ctx.Value(inDo{}).(*work)
	return w
}

// work returns the work in ctx for which Do took this very value, or nil.
func (s *contender) work(ctx context.Context) *work {
	w := working(ctx)
	for w != nil && w.contender != s {
		w = w.within
	}
	return w
}

// ownIn returns the names that the work of ctx holds at present, through any value, and a description of the value that
// holds the last one.
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
