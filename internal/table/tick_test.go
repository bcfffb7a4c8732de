package table

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Another process may get another key for a call within a fiftieth of the period, at most five minutes, of the change.
func TestACallCloseToTheChangeOfTheKeyIsARisk(t *testing.T) {
	const day = 24 * time.Hour
	for _, period := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, day, 7 * day} {
		near := min(period/50, 5*time.Minute)
		for offset := time.Duration(0); offset < period; offset += period / 10 {
			tick := Tick{Period: period, Offset: offset.Truncate(time.Second), Nearest: true}
			change := tick.Begin(time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)).Add(period / 2)
			for off, want := range map[time.Duration]bool{-near: true, -time.Millisecond: true, 0: true, near: true,
				near + time.Millisecond: false, period / 2: false, period - near - time.Millisecond: false} {
				_, risk := tick.Due(change.Add(off))
				assert.Equal(t, want, risk != "", "%v %v", tick, off)
			}
			tick.Nearest = false
			_, risk := tick.Due(change)
			assert.Empty(t, risk, "such a schedule has no times that another clock could miss")
		}
	}
	_, risk := Tick{Period: 2 * time.Second, Nearest: true}.Due(time.Unix(1, 0).UTC())
	assert.Empty(t, risk, "no cron fires so often")
}

// A tick is in whole seconds, which is all that its keys can say, and its offset is shorter than its period, in either direction.
// Each time of a period has the key at which the period begins.
func TestEachTimeOfAPeriodHasItsKey(t *testing.T) {
	for _, c := range []struct {
		period, offset time.Duration
		ok             bool
	}{
		{time.Second, 0, true}, {time.Hour, time.Hour - time.Second, true}, {time.Hour, time.Second - time.Hour, true}, {7 * time.Second, 3 * time.Second, true},
		{0, 0, false}, {time.Second - 1, 0, false}, {time.Second + 1, 0, false}, {-time.Hour, 0, false}, {time.Hour, 1, false}, {time.Hour, -1, false},
		{time.Hour, time.Hour, false}, {time.Hour, -time.Hour, false}, {time.Hour, 2 * time.Hour, false}, {time.Hour, -2 * time.Hour, false},
	} {
		tick := Tick{Period: c.period, Offset: c.offset}
		assert.Equal(t, c.ok, tick.Check() == nil, "%v", tick)
		if !c.ok {
			continue
		}
		begin := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).Add(c.offset + 100*365*24*time.Hour/c.period*c.period) // a Monday's midnight, and whole periods later
		for into, periods := range map[time.Duration][2]int{0: {0, 0}, 1: {0, 0}, c.period/2 - 1: {0, 0}, (c.period + 1) / 2: {0, 1}, c.period - 1: {0, 1}, c.period: {1, 1}, -1: {-1, 0}} {
			for i, nearest := range []bool{false, true} {
				tick.Nearest = nearest
				due, _ := tick.Due(begin.Add(into).In(time.FixedZone("", 3600)))
				want := begin.Add(time.Duration(periods[i]) * c.period)
				assert.Equal(t, Due{want.Format(time.RFC3339), c.period}, due, "%v, %v into a period", tick, into)
			}
		}
	}
	for period, offset := range map[time.Duration]time.Duration{time.Second: 0, 30*time.Minute - 1: 0, 30 * time.Minute: 7*time.Minute + 30*time.Second, 24 * time.Hour: 7*time.Minute + 30*time.Second} {
		assert.Equal(t, offset, UsualOffset(period), period)
	}
}
