package spindle

import (
	"context"
	"fmt"

	"github.com/spindle-lock/spindle/internal/elect"
)

// StepDown gives up the lock, and returns once the lock has been released. The leader announces that it is leaving, and
// continues for a third of the lease and one round trip so that the followers see the announcement. Then it cancels its
// work's context, with ErrSteppedDown as the cause, and releases the lock once the work has returned. This Lock
// continues to compete. It does not claim the lock again until another candidate has held it or a third of the lease
// has passed. If it is not known whether the lock was released, that pause is a whole lease.
//
// The error is ErrNotLeader if this Lock does not hold the lock, ErrSuperseded or ErrExpired if the lock was lost in
// the meantime, and ctx's error if ctx ended. Any other error says that the leader function has not returned within a
// lease of its cancellation, or that the release failed. A step-down can't be canceled: it continues even after an
// error. If the leader function itself calls StepDown, it must pass its own ctx. StepDown then returns ctx's error when
// the work is to stop, and the function must return as well.
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
		return fmt.Errorf("%w: the lock is still held and will be released once its work has returned", context.Cause(ctx))
	}
}
