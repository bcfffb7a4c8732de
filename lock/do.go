package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrLost is the cause of the context in Do if its lock was lost, or another goroutine gave it back. It wraps the
// reason of a loss: spindle.ErrExpired or spindle.ErrSuperseded.
var ErrLost = errors.New("the lock was lost")

// Locker is the argument of Do: a Mutex, a Set, a Semaphore, or a type that embeds one.
type Locker interface {
	take(ctx context.Context, try bool) (*work, error) // nil: not without waiting
}

// Do takes the lock, or a permit of a semaphore, runs fn, and gives it back in every case, panics included. The context
// of fn ends when ctx does, or, with the cause ErrLost, the instant the lock is lost or somebody else unlocks it. Do
// returns fn's error. It joins ErrNotHeld if the lock was gone before fn returned, whether or not fn noticed, or the
// reason why the lock could not be given back: it is left to expire then.
//
// The context of fn, and contexts derived from it, know what is held. With them, Apply and ReadWriteTransaction of l
// write under the token of this turn, never under a later one, and Semaphore.Permit returns the permit. Lock and
// TryLock of a held name return ErrHeld, whichever Mutex or Set calls them: they would wait for fn, and fn for them.
//
// Do gives back only what it has taken itself, never what another goroutine has taken since.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error) error {
	own, err := l.take(ctx, false)
	if err != nil {
		return err
	}
	return own.do(ctx, fn)
}

// TryDo is Do if the lock, or a permit, is free. It reports whether fn was run.
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

// work is one call of fn in Do, and what it holds.
type work struct {
	*held
	permit *Permit // of a semaphore
	unlock func(context.Context) error
	within *work // the work whose function called this Do, or nil
}

// inDo is the key of the work in the contexts that Do makes.
type inDo struct{}

func working(ctx context.Context) *work {
	w, _ := ctx.Value(inDo{}).(*work)
	return w
}

// work returns the work of ctx that has taken this very value, or nil.
func (s *contender) work(ctx context.Context) *work {
	w := working(ctx)
	for w != nil && w.contender != s {
		w = w.within
	}
	return w
}

// ownIn returns which of names the work of ctx holds now, by any value, and what holds the last.
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
