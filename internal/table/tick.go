package table

import (
	"fmt"
	"time"
)

// A Tick is a schedule: periods that are counted from Monday, 1 January of the year 1, 0:00 UTC, plus the offset. The key
// of each is its beginning, so keys are in the order of time.
type Tick struct {
	Period, Offset time.Duration
	Nearest        bool // the beginning that is nearest counts, not the last
}

// Check says why there is no such schedule, or nil.
func (t Tick) Check() error {
	if t.Period < time.Second || t.Period%time.Second != 0 || t.Offset%time.Second != 0 || t.Offset.Abs() >= t.Period {
		return fmt.Errorf("a tick of %v, with an offset of %v: the period must be whole seconds, at least one, and the offset whole seconds, less than the period", t.Period, t.Offset)
	}
	return nil
}

// Begin is the beginning that counts at a time.
func (t Tick) Begin(now time.Time) time.Time {
	begin := now.Add(-t.Offset).Truncate
	if t.Nearest {
		begin = now.Add(-t.Offset).Round
	}
	return begin(t.Period).Add(t.Offset).UTC()
}

// BetterOffset returns the offset of a time that is close to the end of what counts as one time: a call for the same time
// by another clock, a little earlier or later, would be for another one. It is for a Nearest tick, and reports false if the
// time is far from the end. What is called more often than once a minute is no schedule's.
func (t Tick) BetterOffset(now time.Time) (time.Duration, bool) {
	left := t.Period/2 - now.Sub(t.Begin(now)).Abs()
	if t.Period < time.Minute || left > min(t.Period/50, 5*time.Minute) {
		return 0, false
	}
	grain := time.Second
	if t.Period >= time.Hour {
		grain = time.Minute
	}
	return now.Sub(Tick{Period: t.Period}.Begin(now)).Round(grain) % t.Period, true
}

// Key is that of the beginning that counts at a time.
func (t Tick) Key(now time.Time) string { return t.Begin(now).Format(time.RFC3339) }

func isTick(key string) bool { return timeOf(key).UTC().Format(time.RFC3339) == key }

// Comparable reports whether one of two keys is after the other: both are ticks, or none is.
func Comparable(a, b string) bool { return isTick(a) == isTick(b) }

// timeOf is the beginning whose key it is, or, of a key that is no tick, the zero time.
func timeOf(key string) time.Time {
	at, _ := time.Parse(time.RFC3339, key)
	return at
}
