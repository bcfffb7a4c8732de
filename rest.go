package spindle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// errReturned is the reason for a term that ended because its leader function returned.
var errReturned = fmt.Errorf("%w: the leader function returned", ErrSteppedDown)

// rest is how long an elector leaves the lock to other candidates after its leader function has ended a term by
// returning. It is longer than an ordinary Yield if that happens repeatedly, and it does not end when another candidate
// holds the lock. Otherwise two processes whose leader functions fail would pass the lock back and forth without a pause,
// and a healthy candidate would rarely be first.
type rest struct {
	began  elect.Instant // of the current term
	since  elect.Instant
	length time.Duration // zero: no rest since the last term of three leases or more
}

// over is called at the end of each term.
func (r *rest) over(at elect.Instant, lease time.Duration) {
	if at.Ran(r.began) >= 3*lease {
		r.length = 0
	}
}

// begin begins a rest, and returns its length.
func (r *rest) begin(now elect.Instant, lease time.Duration) time.Duration {
	r.since, r.length = now, min(max(2*r.length, lease/3), 3*lease)
	return r.length
}

// left returns how much longer the rest lasts. The result is zero or negative if it has ended.
func (r *rest) left(now elect.Instant) time.Duration {
	if r.length == 0 {
		return 0
	}
	return r.length - now.Ran(r.since)
}

// restNow begins a rest. A leader function that has returned after less than three leases has probably failed. That is
// logged as a warning the first time.
func (l *leader) restNow() {
	now, level := l.config.Clock.Now(), slog.LevelDebug
	if l.rest.length == 0 && now.Ran(l.rest.began) < 3*l.config.Lease {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "the leader function returned before its context ended, so the lock was given up", "token", l.last, "pause", rounded(l.rest.begin(now, l.config.Lease)))
}

// holdOff returns how long the candidate leaves the lock to others.
func (e *elector) holdOff(name string) time.Duration {
	left := e.rest.left(e.config.Clock.Now())
	if e.config.HoldOff != nil {
		left = max(left, e.config.HoldOff(name))
	}
	return left
}
