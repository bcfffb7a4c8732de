package group

import (
	"math"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// alarm is when something is due. The zero alarm is never due.
type alarm struct {
	on   bool
	from elect.Instant
	in   time.Duration
}

func (a *alarm) set(c elect.Clock, in time.Duration) { *a = alarm{true, c.Now(), in} }

// sooner moves it to then, unless it is due before that.
func (a *alarm) sooner(c elect.Clock, in time.Duration) {
	if a.left(c) > in {
		a.set(c, in)
	}
}

func (a *alarm) off() { a.on = false }

// left returns the time until it is due: not positive once it is.
func (a *alarm) left(c elect.Clock) time.Duration {
	if !a.on {
		return math.MaxInt64
	}
	return a.in - c.Now().Since(a.from)
}

// wait returns the time until the held-up work may continue: none once the alarm is due, or if it was never set.
func (a *alarm) wait(c elect.Clock) time.Duration {
	if !a.on {
		return 0
	}
	return max(a.left(c), 0)
}
