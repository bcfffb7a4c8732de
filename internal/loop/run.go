package loop

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// ErrRunning is returned by Run if an earlier Run has not ended.
var ErrRunning = errors.New("spindle: already running: before calling Run again, wait for done and for any work that has not returned")

// Loop is the work of one Run.
type Loop interface {
	Run(ctx context.Context) error // returns once ctx has ended and it has stopped
	Overdue() bool                 // reports whether the caller's code has not returned in time
	End()                          // waits for that code without a limit, because two Runs must not call it at the same time
}

// Runs manages the Runs of one value, which can only run one at a time.
type Runs struct {
	Pulse
	running atomic.Bool // until the caller's code has returned too
	going   atomic.Bool // until the loop has stopped, so that code which is woken by its End sees that it has
}

// Going reports whether a Run is in progress.
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

// AndWait calls a Run and waits until it ends.
func AndWait(ctx context.Context, run func(context.Context, ...chan<- error) error) error {
	done := make(chan error, 1)
	if err := run(ctx, done); err != nil {
		return err
	}
	return <-done
}

// report delivers Run's one value, but waits at most one lease duration, because a receiver might never come.
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
		s.Log.Error("no goroutine received from the done channel for one lease duration: give it room for one value, as in make(chan error, 1)", "value", err)
	}
}
