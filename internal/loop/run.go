package loop

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// ErrRunning is returned by Run while an earlier one has not ended.
var ErrRunning = errors.New("spindle: already running: wait for done, and for work that has not returned, before calling Run again")

// Loop is what one Run does.
type Loop interface {
	Run(ctx context.Context) error // returns once ctx has ended and it has stopped
	Overdue() bool                 // the caller's code has not returned in time
	End()                          // waits for that code, however long: two Runs must not call the same code at once
}

// Runs are the Runs of one value, one at a time.
type Runs struct {
	Pulse
	running atomic.Bool // until the caller's code has returned too
	going   atomic.Bool // the loop: what its End wakes is to see that it does not
}

// Going reports whether a Run goes on.
func (r *Runs) Going() bool { return r.going.Load() }

// Settings are the settings of a Run.
type Settings struct {
	Lease time.Duration
	Clock elect.Clock
	Log   *slog.Logger
	Wrap  func(step string, err error) error
}

// Start checks the arguments of a Run, and starts it.
func (r *Runs) Start(ctx context.Context, done []chan<- error, s Settings, begin func() Loop) error {
	if err := check(ctx, done); err != nil {
		return s.Wrap("run", err)
	}
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	r.Begin()
	r.going.Store(true)
	go func() {
		l := begin()
		err := l.Run(ctx)
		r.going.Store(false)
		end := func() { l.End(); r.running.Store(false) }
		if l.Overdue() {
			defer end()
		} else {
			end()
		}
		if err != nil && len(done) > 0 {
			err = s.Wrap("stop", err)
		}
		report(err, done, s)
	}()
	return nil
}

// AndWait calls a Run, and waits for its end.
func AndWait(ctx context.Context, run func(context.Context, ...chan<- error) error) error {
	done := make(chan error, 1)
	if err := run(ctx, done); err != nil {
		return err
	}
	return <-done
}

// report delivers Run's one value, for at most a lease. A receiver that never comes must not keep the goroutine.
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
		s.Log.Error("nobody received from the done channel for a lease: give it room for one value, make(chan error, 1)", "value", err)
	}
}
