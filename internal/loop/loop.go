// Package loop has the code that background loops share.
//
//   - run.go: how the loops begin and end; loop.go: their arguments and grace period
//   - inbox.go: events for a loop; mailbox.go: events for an observer; pulse.go: whether a loop succeeds
//   - pause.go: how long a waiter pauses before it runs work that has failed
//   - problems.go: how the loops log errors; hint.go: advice on how to fix the errors
package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// check returns an error that says what is wrong with the arguments of Run, or nil.
func check(ctx context.Context, done []chan<- error) error {
	switch {
	case ctx == nil:
		return errors.New("ctx is nil: use context.Background() to run forever")
	case len(done) > 1:
		return fmt.Errorf("%d done channels were given: at most one is allowed", len(done))
	case len(done) == 1 && done[0] == nil:
		return errors.New("the done channel is nil: omit it, or use make(chan error, 1)")
	case ctx.Err() != nil:
		return fmt.Errorf("ctx had already ended, so nothing was started: %w", context.Cause(ctx))
	}
	return nil
}

// Overdue returns the error for code that has not returned in time.
func Overdue(what string, lease time.Duration) error {
	return fmt.Errorf("%s has not returned within one lease duration (%v) after it was told to stop", what, lease)
}

// GracePeriod returns a channel that is closed when d has passed after the end of ctx, unless forget is called first.
func GracePeriod(ctx context.Context, clock elect.Clock, d time.Duration) (over <-chan struct{}, forget func()) {
	late, forgotten := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		limit := clock.Timer(d)
		defer limit.Stop()
		select {
		case <-limit.C:
			close(late)
		case <-forgotten:
		}
	})
	return late, func() { stop(); close(forgotten) }
}
