// Package loop is what the loops that run in the background have in common: the elector's and a group's.
//
//   - run.go: how they begin and end; loop.go: what they are given for it
//   - inbox.go: what others tell them; mailbox.go: what they tell an observer; pulse.go: whether they get on
//   - problems.go: what they log of errors; hint.go: what to do about these
package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// check says what is wrong with the arguments of Run, or nil.
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

// Overdue is the error of what has not returned in time.
func Overdue(what string, lease time.Duration) error {
	return fmt.Errorf("%s has not returned within a lease (%v) of being told to stop", what, lease)
}

// GracePeriod closes over once ctx has ended and d has passed since, unless that is forgotten before.
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
