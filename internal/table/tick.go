package table

import (
	"fmt"
	"time"
)

// A Tick is a schedule of periods of equal length. The periods are counted from 0:00 UTC on Monday, January 1 of the
// year 1, plus the offset. The key of a period is its beginning, so keys sort in the order of time.
type Tick struct {
	Period, Offset time.Duration
	Nearest        bool // use the nearest beginning, not the last one
}

// Check returns an error if the schedule is not valid.
func (t Tick) Check() error {
	if t.Period < time.Second || t.Period%time.Second != 0 || t.Offset%time.Second != 0 || t.Offset.Abs() >= t.Period {
		return fmt.Errorf("a tick of %v with an offset of %v: both must be whole seconds, the period must be at least one second, and the offset must be less than the period", t.Period, t.Offset)
	}
	return nil
}

// Begin returns the beginning of the period to which the time now belongs.
func (t Tick) Begin(now time.Time) time.Time {
	begin := now.Add(-t.Offset).Truncate
	if t.Nearest {
		begin = now.Add(-t.Offset).Round
	}
	return begin(t.Period).Add(t.Offset).UTC()
}

// BetterOffset is for a Nearest tick. If now is close to the time at which the key changes, a process with a slightly
// different clock might compute a different key for the same call. In that case, BetterOffset returns an offset for
// which now is the beginning of a period. Otherwise, it reports false. It also reports false if the period is less than
// a minute, because calls that are so frequent are assumed not to follow a schedule.
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

// UsualOffset returns the offset of a Nearest tick if none is given. It makes periods end far from the times at which
// timers usually fire: half a period away from full hours or days and, for periods of at least half an hour, between two
// quarter hours, which are the same in every time zone.
func UsualOffset(period time.Duration) time.Duration {
	if period < 2*quarter {
		return 0
	}
	return quarter / 2
}

// Key returns the key of the period to which the time now belongs.
func (t Tick) Key(now time.Time) string { return t.Begin(now).Format(time.RFC3339) }

func isTick(key string) bool { return timeOf(key).UTC().Format(time.RFC3339) == key }

// Comparable reports whether two keys can be ordered. Both of them must be ticks, or neither.
func Comparable(a, b string) bool { return isTick(a) == isTick(b) }

// timeOf returns the beginning of the period with this key, or the zero time if the key is not a tick.
func timeOf(key string) time.Time {
	at, _ := time.Parse(time.RFC3339, key)
	return at
}
