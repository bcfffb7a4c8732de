package table

import (
	"cmp"
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
		return fmt.Errorf("invalid tick with a period of %v and an offset of %v: both must be whole seconds, the period must be at least one second, and the absolute value of the offset must be less than the period", t.Period, t.Offset)
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

// A Schedule says what is due.
type Schedule interface {
	// Due returns the key that is due at the given time. If calls at this local time of day can get a wrong key, Due
	// also says why.
	Due(now time.Time) (due Due, risk string)
}

// Named is a schedule with a single key.
type Named string

func (n Named) Due(time.Time) (Due, string) { return Due{Key: string(n)}, "" }

// Due implements Schedule. It returns a risk only if Nearest is set and the period is at least a minute. Calls that are
// more frequent probably do not follow a schedule.
func (t Tick) Due(now time.Time) (due Due, risk string) {
	begin := t.Begin(now)
	due = Due{begin.Format(time.RFC3339), t.Period}
	if !t.Nearest || t.Period < time.Minute {
		return due, ""
	}
	last := begin
	if begin.After(now) {
		last = begin.Add(-t.Period)
	}
	if spring := t.nextSpring(now); !spring.IsZero() {
		risk = fmt.Sprintf("if your timers fire at %s local time, two consecutive times fall into one period when clocks are set forward on %s, so the work misses a run", now.Format("15:04"), spring.Format(time.DateOnly))
	}
	return due, cmp.Or(Halfway(last, now, last.Add(t.Period)), risk)
}

// Halfway describes the risk if now is about halfway between two scheduled times: a process with a slightly different
// clock might choose the other key. At other times, Halfway returns "".
func Halfway(last, now, next time.Time) string {
	if (next.Sub(now)-now.Sub(last)).Abs()/2 > margin(next.Sub(last)) {
		return ""
	}
	return "this call is halfway between two scheduled times, so a call by another machine might get the other key, and the work would run twice or not at all"
}

// margin returns how far calls should stay from the time at which the key changes.
func margin(period time.Duration) time.Duration { return min(period/50, 5*time.Minute) }

// nextSpring returns the next time within a year at which clocks are set forward and a schedule in local time misses a
// run, or the zero time if there is none. The last call before that time and the first call after it, both at the
// present local time of day, are then less than a period apart and get the same key.
func (t Tick) nextSpring(now time.Time) time.Time {
	_, present := now.Zone()
	for _, at := now.ZoneBounds(); !at.IsZero() && at.Before(now.AddDate(1, 0, 0)); _, at = at.ZoneBounds() {
		_, before := at.Add(-1).Zone()
		_, after := at.Zone()
		shift := time.Duration(after-before) * time.Second % t.Period
		late := now.Add(time.Duration(present-before) * time.Second) // when calls come before the change; after it, they come earlier by shift
		if m := margin(t.Period); shift > 0 && !t.Begin(late.Add(-shift-m)).Equal(t.Begin(late.Add(m))) {
			return at
		}
	}
	return time.Time{}
}

const quarter = 15 * time.Minute

// UsualOffset returns the default offset of a Nearest tick. The key of such a tick changes halfway between the
// beginnings of two periods, and timers should not fire at that time. If the period is a multiple of half an hour, the
// offset moves the change away from all quarter hours of UTC. Timers usually fire on the hour, and
// in every time zone, each hour begins on a quarter hour of UTC.
func UsualOffset(period time.Duration) time.Duration {
	if period < 2*quarter {
		return 0
	}
	return quarter / 2
}

func isTick(key string) bool { return timeOf(key).UTC().Format(time.RFC3339) == key }

// Comparable reports whether two keys can be ordered, which is the case if both of them are ticks or neither is.
func Comparable(a, b string) bool { return isTick(a) == isTick(b) }

// timeOf returns the beginning of the period with this key, or the zero time if the key is not a tick.
func timeOf(key string) time.Time {
	at, _ := time.Parse(time.RFC3339, key)
	return at
}
