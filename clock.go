package spindle

import "time"

// clock is how the loop sees time. The only thing assumed of it is its rate, over one lease.
type clock interface {
	now() instant
	timer(time.Duration) *time.Timer
	afterFunc(time.Duration, func()) *time.Timer
}

// instant is one reading of both clocks of a machine, in nanoseconds. The monotonic one stands still
// while a machine is suspended; the wall clock does not, but somebody may set it.
type instant struct{ wall, mono int64 }

// since is the larger of what the two clocks say: a clock that stood still or was set back can't
// make a lease longer, and one that was set forward can only make it shorter.
func (i instant) since(start instant) time.Duration {
	return time.Duration(max(i.wall-start.wall, i.mono-start.mono))
}

type systemClock struct{}

var processStart = time.Now()

func (systemClock) now() instant {
	t := time.Now()
	return instant{wall: t.UnixNano(), mono: int64(t.Sub(processStart))}
}

func (systemClock) timer(d time.Duration) *time.Timer { return time.NewTimer(d) }

func (systemClock) afterFunc(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, f) }
