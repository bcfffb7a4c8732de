package table

import (
	"fmt"
	"time"
)

// A Tick is a schedule that divides time into periods of equal length. The first period begins at midnight UTC on
// Monday, January 1 of the year 1, plus the offset. The key of a period is the time at which it begins, so keys sort
// chronologically.
type Tick struct {
	Period, Offset time.Duration
	Nearest        bool // use the nearest beginning, not the last one
}

func (t Tick) Check() error {
	if t.Period < time.Second || t.Period%time.Second != 0 || t.Offset%time.Second != 0 || t.Offset.Abs() >= t.Period {
		return fmt.Errorf("invalid tick with a period of %v and an offset of %v: both must be whole seconds, the period must be at least one second, and the offset must be less than the period", t.Period, t.Offset)
	}
	return nil
}

func (t Tick) Begin(now time.Time) time.Time {
	begin := now.Add(-t.Offset).Truncate
	if t.Nearest {
		begin = now.Add(-t.Offset).Round
	}
	return begin(t.Period).Add(t.Offset).UTC()
}

// BetterOffset suggests an offset, with which a period begins at about now, if now is too close to the time at which the
// key of a Nearest tick changes. A process with a slightly different clock might then compute a different key for the
// same call. Calls more frequent than once a minute probably do not follow a schedule.
func (t Tick) BetterOffset(now time.Time) (time.Duration, bool) {
	left := t.Period/2 - now.Sub(t.Begin(now)).Abs()
	if t.Period < time.Minute || left > t.margin() {
		return 0, false
	}
	return t.offsetOf(now), true
}

// margin returns how far calls should stay from the time at which the key changes.
func (t Tick) margin() time.Duration { return min(t.Period/50, 5*time.Minute) }

// offsetOf returns the offset with which a period begins at about the given time.
func (t Tick) offsetOf(begin time.Time) time.Duration {
	grain := time.Second
	if t.Period >= time.Hour {
		grain = time.Minute
	}
	return begin.Sub(Tick{Period: t.Period}.Begin(begin)).Round(grain) % t.Period
}

// A Spring is a time at which clocks are set forward, so that two calls at the same local time get the same key of a
// Nearest tick.
type Spring struct {
	At     time.Time
	Offset time.Duration // prevents it, unless None is true
	None   bool          // no offset prevents it
}

// NextSpring returns the first Spring within a year. It assumes that calls are made at now's time of day in now's time
// zone. On the day of the change, the time between two calls is then shorter than a period.
func (t Tick) NextSpring(now time.Time) (s Spring, found bool) {
	_, present := now.Zone()
	for _, at := now.ZoneBounds(); !at.IsZero() && at.Before(now.AddDate(1, 0, 0)); _, at = at.ZoneBounds() {
		_, before := at.Add(-1).Zone()
		_, after := at.Zone()
		shift := time.Duration(after-before) * time.Second % t.Period
		if t.Period < time.Minute || shift <= 0 {
			continue
		}
		late := now.Add(time.Duration(present-before) * time.Second) // the time of day in winter; in summer, it is early
		early := late.Add(-shift)
		if !t.Begin(early.Add(-t.margin())).Equal(t.Begin(late.Add(t.margin()))) {
			return Spring{at, t.offsetOf(early.Add(shift / 2)), shift+2*t.margin() >= t.Period}, true
		}
	}
	return s, false
}

const quarter = 15 * time.Minute

// UsualOffset returns the default offset of a Nearest tick. The key of such a tick changes halfway between the
// beginnings of two periods, and this should not happen when timers usually fire. So for periods of half an hour or more,
// the offset moves the change away from all quarter hours, because full hours are at a quarter hour in every time zone.
func UsualOffset(period time.Duration) time.Duration {
	if period < 2*quarter {
		return 0
	}
	return quarter / 2
}

func (t Tick) Key(now time.Time) string { return t.Begin(now).Format(time.RFC3339) }

func isTick(key string) bool { return timeOf(key).UTC().Format(time.RFC3339) == key }

// Comparable reports whether two keys can be ordered. Both of them must be ticks, or neither.
func Comparable(a, b string) bool { return isTick(a) == isTick(b) }

// timeOf returns the beginning of the period with this key, or the zero time if the key is not a tick.
func timeOf(key string) time.Time {
	at, _ := time.Parse(time.RFC3339, key)
	return at
}
