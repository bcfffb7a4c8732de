package table

import (
	"fmt"
	"time"
)

// A Tick is a schedule: periods counted from Monday, 1 January of the year 1, 0:00 UTC, plus the offset. The key of
// each is its beginning, so keys are in the order of time.
type Tick struct {
	Period, Offset time.Duration
	Nearest        bool // the nearest beginning counts, not the last
}

// Check returns why there is no such schedule, or nil.
func (t Tick) Check() error {
	if t.Period < time.Second || t.Period%time.Second != 0 || t.Offset%time.Second != 0 || t.Offset.Abs() >= t.Period {
		return fmt.Errorf("a tick of %v, with an offset of %v: the period must be whole seconds, at least one, and the offset whole seconds, less than the period", t.Period, t.Offset)
	}
	return nil
}

// Begin returns the beginning that counts at a time.
func (t Tick) Begin(now time.Time) time.Time {
	begin := now.Add(-t.Offset).Truncate
	if t.Nearest {
		begin = now.Add(-t.Offset).Round
	}
	return begin(t.Period).Add(t.Offset).UTC()
}

// BetterOffset is for a Nearest tick. If now is close to where the key changes, a call for the same time by another
// clock, a little earlier or later, would have another key: then it returns the offset of now. Otherwise it reports
// false. What is called more often than once a minute is no schedule's.
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

const quarter = 15 * time.Minute

// UsualOffset returns the offset of a Nearest tick if none is given. It makes periods end far from the times at which timers
// fire on all machines: half a period from full hours or days, and, for long periods, between two quarters of an hour,
// which are the same in every time zone.
func UsualOffset(period time.Duration) time.Duration {
	if period < 2*quarter {
		return 0
	}
	return quarter / 2
}

// Key returns the key of the beginning that counts at a time.
func (t Tick) Key(now time.Time) string { return t.Begin(now).Format(time.RFC3339) }

func isTick(key string) bool { return timeOf(key).UTC().Format(time.RFC3339) == key }

// Comparable reports whether one of two keys is after the other: both are ticks, or none is.
func Comparable(a, b string) bool { return isTick(a) == isTick(b) }

// timeOf returns the beginning of a key, or the zero time if the key is no tick.
func timeOf(key string) time.Time {
	at, _ := time.Parse(time.RFC3339, key)
	return at
}
