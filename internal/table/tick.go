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

// Key is that of the beginning that counts at a time.
func (t Tick) Key(now time.Time) string { return t.Begin(now).Format(time.RFC3339) }

func isTick(key string) bool {
	at, err := time.Parse(time.RFC3339, key)
	return err == nil && at.UTC().Format(time.RFC3339) == key
}
