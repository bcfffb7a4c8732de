// Package loop contains the code that background loops share.
//
//   - run.go: how the loops begin and end
//   - inbox.go: events for a loop; mailbox.go: events for an observer; pulse.go: whether a loop succeeds
//   - pause.go: how long a waiter pauses before it retries work that has failed
//   - stall.go: the rule that work must make progress
//   - problems.go: how the loops log errors, and advice on how to fix them
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// ErrRunning is returned by Run if an earlier Run has not ended.
var ErrRunning = errors.New("spindle: already running: before calling Run again, wait for done and for any work that has not returned")

// Loop is the background part of a Run. After ctx has ended, it returns once the caller's work has returned, or once
// late has been closed at the end of the grace period. If the work has not returned by then, overdue is a function that
// waits for it. Otherwise, overdue is nil.
type Loop func(ctx context.Context, late <-chan struct{}, events *Mailbox) (overdue func(), err error)

// Runs manages the Runs of one Lock or Group. Only one of them can be active at a time.
type Runs struct {
	Pulse
	running atomic.Bool // true until the caller's code has returned, too
}

// Settings are the settings of a Run.
type Settings struct {
	Lease   time.Duration
	Grace   time.Duration // how long the work may continue after ctx has ended
	Clock   elect.Clock
	Log     *slog.Logger
	Wrap    func(step string, err error) error
	Observe func(elect.Event) // may be nil
}

// Start checks the arguments of a Run, and starts it. The next Run can start once the work and the observer have
// returned, however long that takes, because two Runs must not call the same code at the same time.
func (r *Runs) Start(ctx context.Context, done []chan<- error, s Settings, run Loop) error {
	if err := check(ctx, done); err != nil {
		return s.Wrap("run", err)
	}
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	r.Begin()
	go func() {
		late, forget := gracePeriod(ctx, s.Clock, s.Grace)
		events := newMailbox(s.Observe)
		overdue, err := run(ctx, late, events)
		forget()
		r.Stop()
		observing, hangs := events.drain(s.Lease, s.Clock)
		err = errors.Join(err, hangs)
		end := func() {
			if overdue != nil {
				overdue()
			}
			if observing != nil {
				<-observing
			}
			r.running.Store(false)
		}
		if overdue == nil && observing == nil {
			end()
		} else {
			defer end()
		}
		if err != nil && len(done) > 0 {
			err = s.Wrap("stop", err)
		}
		report(err, done, s)
	}()
	return nil
}

// AndWait starts a Run, waits until it ends, and returns its result.
func AndWait(ctx context.Context, run func(context.Context, ...chan<- error) error) error {
	done := make(chan error, 1)
	if err := run(ctx, done); err != nil {
		return err
	}
	return <-done
}

// report sends the result of Run to done. It waits for at most one lease duration, because there may be no goroutine
// that receives the result.
func report(err error, done []chan<- error, s Settings) {
	if len(done) == 0 {
		if err != nil {
			s.Log.Warn("the stop could not be completed", "err", err)
		}
		return
	}
	giveUp := s.Clock.Timer(s.Lease)
	defer giveUp.Stop()
	select {
	case done[0] <- err:
	case <-giveUp.C:
		s.Log.Error("no goroutine received from the done channel within one lease duration, so the result of Run was dropped; use a buffered channel, as in make(chan error, 1)", "value", err)
	}
}

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
func Overdue(what string, limit time.Duration) error {
	return fmt.Errorf("%s has not returned within %v after Run's ctx ended", what, limit)
}

// gracePeriod returns a channel that is closed when d has passed since ctx ended, unless forget is called first.
func gracePeriod(ctx context.Context, clock elect.Clock, d time.Duration) (over <-chan struct{}, forget func()) {
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
