// Package loop is shared by the loops that run in the background: the elector's and a group's.
//
//   - run.go: how they begin and end; loop.go: their arguments
//   - inbox.go: events from others; mailbox.go: events for an observer; pulse.go: whether they succeed
//   - problems.go: how they log errors; hint.go: what to do about these
package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// check returns what is wrong with the arguments of Run, or nil.
func check(ctx context.Context, done []chan<- error) error {
	switch {
	case ctx == nil:
		return errors.New("ctx is nil: context.Background() runs for ever")
	case len(done) > 1:
		return fmt.Errorf("%d done channels: give it one, or none", len(done))
	case len(done) == 1 && done[0] == nil:
		return errors.New("the done channel is nil: leave it out, or make(chan error, 1)")
	case ctx.Err() != nil:
		return fmt.Errorf("ctx had ended before, so nothing was started: %w", context.Cause(ctx))
	}
	return nil
}

// Overdue returns the error about code that has not returned in time.
func Overdue(what string, lease time.Duration) error {
	return fmt.Errorf("%s has not returned within a lease (%v) of being told to stop", what, lease)
}

// GracePeriod closes over once ctx has ended and d has passed since, unless forget was called before.
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
