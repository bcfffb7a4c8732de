package spindle

import (
	"context"
	"fmt"

	"github.com/spindle-lock/spindle/internal/elect"
)

// StepDown gives up the lock, and returns once the lock has been released. The leader first announces that it is
// leaving. It continues to work for a third of the lease and one round trip, so that the followers see the
// announcement. Then it cancels its work's context, with ErrSteppedDown as the cause, and releases the lock once the
// work has returned.
//
// This Lock then competes again, but not immediately. It does not claim the lock until another candidate has held it,
// or until a third of the lease has passed. If the release may have failed, this Lock waits for a whole lease instead.
//
// The error wraps ErrNotLeader if this Lock does not hold the lock, ErrSuperseded or ErrExpired if the lock was lost in
// the meantime, and ctx's error if ctx ended. Any other error means that the leader function did not return within one
// lease after its context was canceled, or that the release failed. A step-down can't be canceled: it continues even if
// StepDown returns an error.
//
// If the leader function itself calls StepDown, it must pass its own ctx. StepDown then returns ctx's error as soon as
// the work has to stop, and the function must return as well.
func (l *Lock) StepDown(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	return l.stepDown(ctx, l.view.Load().term)
}

// stepDown gives up term t only, and no later one.
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
	case err := <-answer: // prefer the answer if both are ready
		return err
	default:
		return fmt.Errorf("%w: the lock is still held, and will be released once the leader function has returned", context.Cause(ctx))
	}
}
