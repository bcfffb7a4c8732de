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

// Stall watches whether one call of the work makes progress. A period in which the machine was suspended or this
// process could not run does not count if it was longer than an eighth of the limit.
type Stall struct {
	Work  context.Context // the work's; may be nil
	Clock elect.Clock
	Limit time.Duration                  // how long the work may make no progress; 0: forever
	Slow  func(idle, left time.Duration) // called each time half of the limit has passed without progress
	End   func(reason error)             // called once if the work has stalled; like Slow, from another goroutine

	last atomic.Int64 // the monotonic clock at the last progress
}

// LogSlow returns a function that logs a warning, for use as Stall.Slow.
func LogSlow(log *slog.Logger) func(idle, left time.Duration) {
	return func(idle, left time.Duration) {
		log.Warn("the work has made no progress; its context will be canceled unless it makes progress in the remaining time", "for", idle, "left", left)
	}
}

// ErrNoWork means that progress was reported outside of any work under a lock.
var ErrNoWork = errors.New("there is no work to report progress for: pass the context that the work's function received, or use its Term or Partition")

// Progress records that the work has made progress. If the work's context has ended, Progress returns the cause.
func (s *Stall) Progress() error {
	switch {
	case s == nil:
		return ErrNoWork
	case s.Limit > 0:
		s.last.Store(s.Clock.Now().Mono)
	}
	if s.Work == nil {
		return nil
	}
	return context.Cause(s.Work)
}

// Idle returns the time since the last progress.
func (s *Stall) Idle() time.Duration {
	return s.Clock.Now().Ran(elect.Instant{Mono: s.last.Load()})
}

// Watch begins to watch the work. Once the work has returned, the caller must call stop, which waits until no call of
// Slow or End is running.
func (s *Stall) Watch() (stop func()) {
	if s.Limit == 0 {
		return func() {}
	}
	_ = s.Progress()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.watch(ctx)
	}()
	return func() {
		cancel()
		<-over
	}
}

func (s *Stall) watch(ctx context.Context) {
	for slow := false; ctx.Err() == nil; {
		idle, next := s.Idle(), s.Limit/2
		if idle >= s.Limit {
			s.End(fmt.Errorf("%w: no progress for %v", elect.ErrStalled, s.Limit))
			return
		}
		was := slow
		if slow = idle >= next; slow {
			next = s.Limit
		}
		if slow && !was {
			s.Slow(idle.Round(time.Millisecond), (s.Limit - idle).Round(time.Millisecond))
		}
		s.wait(ctx, min(next-idle, s.Limit/16)) // short, because a pause shows only if it delays the end of the wait
	}
}

// wait waits for d. If it takes much longer, the work could not run either, so that time does not count.
func (s *Stall) wait(ctx context.Context, d time.Duration) {
	began := s.Clock.Now()
	elect.Sleep(ctx, s.Clock, d)
	now := s.Clock.Now()
	if late := now.Ran(began) - d; late > s.Limit/16 {
		last := s.last.Load()
		s.last.CompareAndSwap(last, min(last+int64(late), now.Mono)) // the work may already have made progress again
	}
}
