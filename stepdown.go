package spindle

import (
	"context"
	"fmt"

	"github.com/spindle-lock/spindle/internal/elect"
)

// StepDown gives up the lock and returns once it is released. The leader announces that it leaves, and continues for a
// third of the lease and a round trip, in which the followers see it. Then it cancels its work's context (the cause of
// the leader function's ctx is ErrSteppedDown), and releases the lock once the work has returned. This Lock still
// competes. It does not claim the lock again before another has held it, or a third of the lease has passed, or a lease
// if it is not known whether the lock was released.
//
// The error is ErrNotLeader if this Lock does not hold the lock; ErrSuperseded or ErrExpired if it was lost meanwhile;
// ctx's error if ctx ended. Otherwise it says that the leader function has not returned within a lease of its
// cancellation, or that the release failed. A step-down can't be taken back: after an error it continues. In the leader
// function, call StepDown with the function's own ctx, and return when it does: it returns ctx's error when the work is
// to stop.
func (l *Lock) StepDown(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	return l.stepDown(ctx, l.view.Load().term)
}

// stepDown gives up this term, and no later one.
func (l *Lock) stepDown(ctx context.Context, t *elect.Term) error {
	answer := make(chan error, 1)
	v := l.view.Load()
	if t == nil || v.term != t || !t.Held() || !v.events.Put(event{what: asked, answer: answer}) {
		return l.wrap("step down", ErrNotLeader)
	}
	if err := awaitAnswer(ctx, answer); err != nil {
		return l.wrap("step down", err)
	}
	return nil
}

func awaitAnswer(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-answer: // both
		return err
	default:
		return fmt.Errorf("%w: the lock is still held, and will be released once its work has returned", context.Cause(ctx))
	}
}
