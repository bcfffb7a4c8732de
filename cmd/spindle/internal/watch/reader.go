package watch

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
)

// What the reader sends, besides snapshots and released locks.
type (
	reading struct{ at time.Time } // a read has begun
	failure struct{ err error }    // a read has failed
)

// A reader reads the table for the model.
type reader struct {
	*Table
	send func(tea.Msg)
	wake chan struct{} // somebody wants to see the released locks
}

const (
	share        = 4
	longestPause = 15 * time.Second
)

// Pause returns how long to wait after a read that took that long. It is a multiple of that, so that the reads of a large table
// take a small part of Spanner's time. The shorter of two reads counts: one that hung is no sign of a large table.
func Pause(every, took, before time.Duration) time.Duration {
	return max(every, min(share*min(took, before), longestPause))
}

// read sends one snapshot after another until ctx ends.
func (r *reader) read(ctx context.Context) {
	var before time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		r.send(reading{began})
		var got tea.Msg
		within, cancel := context.WithTimeout(ctx, r.Limit)
		s, err := r.Read(within)
		cancel()
		if got = s; err != nil {
			got = failure{err}
		}
		if ctx.Err() != nil {
			return
		}
		r.send(got)
		took := time.Since(began)
		wait(ctx, Pause(r.Every, took, before), nil)
		if before = took; err != nil {
			before = 0
		}
	}
}

// The released locks of a table may be many, so they are read seldom: at first, to count them, and more often only if
// somebody looks at them.
const (
	countPause = time.Minute
	countShare = 50
)

// readReleased sends the released locks. It drops an error: the other reads fail too, and report it.
func (r *reader) readReleased(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		within, cancel := context.WithTimeout(ctx, r.Limit)
		found, err := r.Released(within)
		cancel()
		if ctx.Err() == nil && err == nil {
			r.send(found)
		}
		took := time.Since(began)
		wait(ctx, max(r.Every, share*took), nil)
		wait(ctx, max(countPause, countShare*took), r.wake)
	}
}

// wait returns after a pause, at a wake, or when ctx ends.
func wait(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}
