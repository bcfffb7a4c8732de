package elect

import (
	"context"
	"math/rand/v2"
	"time"
)

// Clock gives candidates and terms time, and chance. They only rely on its rate, over one lease.
type Clock interface {
	Now() Instant
	Timer(time.Duration) *time.Timer
	AfterFunc(time.Duration, func()) *time.Timer
	Random(time.Duration) time.Duration // at least 0, and less than the argument
}

// Instant is one reading of both clocks of a machine, in nanoseconds. The monotonic one stands still
// while a machine is suspended; the wall clock does not, but somebody may set it.
type Instant struct{ Wall, Mono int64 }

// Since returns the larger difference of the two clocks: a clock that stood still or was set back can't make a lease
// longer, and one that was set forward can only make it shorter.
func (i Instant) Since(start Instant) time.Duration {
	return time.Duration(max(i.Wall-start.Wall, i.Mono-start.Mono))
}

// Ran returns how long the machine has run since, by the monotonic clock: for times on which no lease depends.
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

// Sleep returns early when ctx ends.
func Sleep(ctx context.Context, c Clock, d time.Duration) {
	t := c.Timer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Jitter returns d less up to a tenth, so that candidates that started together do not stay together.
func Jitter(c Clock, d time.Duration) time.Duration { return d - c.Random(d/10+1) }

// A failed step is retried soon, however long the lease is: with a lease of an hour, one lost request must not cost
// minutes.
const (
	longestFirstPause = time.Second
	longestPause      = 10 * time.Second
)

// Backoff gives the pauses between attempts at something that fails. They grow from First to Max, by doubling, with
// jitter: from a second to ten at most. The zero First is a thirtieth of Max.
type Backoff struct {
	First, Max time.Duration
	next       time.Duration
}

// Pause returns the next pause.
func (b *Backoff) Pause(c Clock) time.Duration {
	first := b.First
	if first == 0 {
		first = b.Max / 30
	}
	b.next = min(max(2*b.next, min(first, longestFirstPause)), b.Max, longestPause)
	return Jitter(c, b.next)
}

// Reset begins again.
func (b *Backoff) Reset() { b.next = 0 }
