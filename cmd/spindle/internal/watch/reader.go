package watch

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
)

// The reader sends these messages in addition to snapshots and released locks.
type (
	reading struct{ at time.Time } // a read has begun
	failure struct{ err error }    // a read has failed
)

// A reader reads the table for the model.
type reader struct {
	*Table
	send func(tea.Msg)
	wake chan struct{} // receives when the user wants to see the released locks
}

const (
	share        = 4
	longestPause = 15 * time.Second
)

// Pause returns how long to wait after a read. The durations of that read and of the previous one are took and before.
// The pause is a multiple of the shorter one, so that reads of a large table take up only a small part of Spanner's
// time. The longer one does not count, because a single read that hangs does not mean that the table is large.
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

// A table may have many released locks, so they are read rarely: once at first to count them, then after long pauses,
// and whenever the user wants to see them.
const (
	countPause = time.Minute
	countShare = 50
)

// readReleased sends the released locks until ctx ends. It ignores errors, because the other reads then fail too and
// report them.
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

// wait returns after a pause, when wake receives, or when ctx ends.
func wait(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}
