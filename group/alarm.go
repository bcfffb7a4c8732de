package group

import (
	"math"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// never is the time until something that is not scheduled.
const never = time.Duration(math.MaxInt64)

// alarm is a time at which something is due. The zero alarm is never due.
type alarm struct {
	on   bool
	from elect.Instant
	in   time.Duration
}

func (a *alarm) set(c elect.Clock, in time.Duration) { *a = alarm{true, c.Now(), in} }

// sooner makes the alarm due after the given duration, unless it is due earlier already.
func (a *alarm) sooner(c elect.Clock, in time.Duration) {
	if a.left(c) > in {
		a.set(c, in)
	}
}

func (a *alarm) off() { a.on = false }

// left returns the time until the alarm is due. Once the alarm is due, the result is zero or negative.
func (a *alarm) left(c elect.Clock) time.Duration {
	if !a.on {
		return never
	}
	return a.in - c.Now().Since(a.from)
}
