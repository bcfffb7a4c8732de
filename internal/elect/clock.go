package elect

import (
	"context"
	"math/rand/v2"
	"time"
)

// Clock supplies the time and random durations. Safety depends only on the clock's rate during one lease, and never on
// the time that the clock shows.
type Clock interface {
	Now() Instant
	Timer(time.Duration) *time.Timer
	AfterFunc(time.Duration, func()) *time.Timer
	Random(time.Duration) time.Duration // at least 0 and less than the argument
}

// Instant is one reading of both clocks of a machine, in nanoseconds. On most systems, the monotonic clock stops while
// the machine is suspended. The wall clock keeps running, but it can be set by hand.
type Instant struct{ Wall, Mono int64 }

// Since returns the time elapsed since start, by the clock that shows the larger difference. If one clock has stopped
// or was set back, the lease still ends on time by the other clock. A clock that was set forward can only shorten a
// lease.
func (i Instant) Since(start Instant) time.Duration {
	return time.Duration(max(i.Wall-start.Wall, i.Mono-start.Mono))
}

// Ran returns how long the machine has been running since the given instant, by the monotonic clock. On most systems,
// this does not include time during which the machine was suspended. No lease may depend on the result.
func (i Instant) Ran(since Instant) time.Duration { return time.Duration(i.Mono - since.Mono) }

// Time returns the wall clock's time.
func (i Instant) Time() time.Time { return time.Unix(0, i.Wall) }

// SystemClock is the machine's clock.
type SystemClock struct{}

var processStart = time.Now()

// Now implements Clock.
func (SystemClock) Now() Instant {
	t := time.Now()
	return Instant{Wall: t.UnixNano(), Mono: int64(t.Sub(processStart))}
}

// Timer implements Clock.
func (SystemClock) Timer(d time.Duration) *time.Timer { return time.NewTimer(d) }

// AfterFunc implements Clock.
func (SystemClock) AfterFunc(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, f) }

// Random implements Clock.
func (SystemClock) Random(d time.Duration) time.Duration { return rand.N(d) }

// Sleep waits for d, or until ctx ends if that is sooner. If d is zero or negative, Sleep uses no timer. This avoids a
// crash of Go 1.26 with the race detector if several goroutines of a synctest bubble wait for timers of zero duration.
func Sleep(ctx context.Context, c Clock, d time.Duration) {
	if d <= 0 {
		return
	}
	t := c.Timer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Jitter returns d minus a random part of at most a tenth, so that candidates that started together drift apart.
func Jitter(c Clock, d time.Duration) time.Duration { return d - c.Random(d/10+1) }

// These limits keep the pauses after a failed step short, however long the lease is. With a lease of an hour, a lost
// request must not delay a candidate for minutes.
const (
	LongestPause      = 10 * time.Second
	longestFirstPause = time.Second
)

// Backoff computes the pauses between attempts at a step that fails. They double from a thirtieth of Max to Max, with
// jitter. The first pause is at most a second, and no pause is longer than ten seconds.
type Backoff struct {
	Max  time.Duration
	next time.Duration
}

func (b *Backoff) Pause(c Clock) time.Duration {
	b.next = min(max(2*b.next, min(b.Max/30, longestFirstPause)), b.Max, LongestPause)
	return Jitter(c, b.next)
}

// Reset makes the next pause a first pause again.
func (b *Backoff) Reset() { b.next = 0 }

// Remind calls a function repeatedly while work has not returned after its context was canceled. The first call comes
// after one lease duration, and another follows each time the wait has doubled. Remind returns when ctx ends, so the
// caller must end ctx when the work returns.
func Remind(ctx context.Context, c Clock, lease time.Duration, say func(waited time.Duration)) {
	for waited, next := time.Duration(0), lease; ; waited, next = next, 2*next {
		if Sleep(ctx, c, next-waited); ctx.Err() != nil {
			return
		}
		say(next)
	}
}
