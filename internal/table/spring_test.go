package table

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// missed returns how many of the calls at one local time, over a year from the given one, find their key taken by an
// earlier call. Three machines call, three seconds apart.
func missed(tick Tick, first time.Time) (n int) {
	taken := map[string]bool{}
	for i := range int(365 * 24 * time.Hour / tick.Period) {
		at := byWallClock(first, time.Duration(i)*tick.Period)
		_, before := at.Add(-4 * tick.Period).Zone()
		if _, after := at.Add(4 * tick.Period).Zone(); before == after {
			continue // all periods far from the changes are alike
		}
		keys := map[string]bool{}
		for machine := range 3 {
			due, _ := tick.Due(at.Add(time.Duration(machine) * 3 * time.Second))
			keys[due.Key] = true
		}
		for key := range keys {
			if taken[key] {
				n++
			}
			taken[key] = true
		}
	}
	return n
}

// byWallClock returns when the wall clock shows a time that is so much later. If the clocks pass over that time when they
// are set forward, that is when cron makes up for it.
func byWallClock(first time.Time, later time.Duration) time.Time {
	_, offset := first.Zone()
	wall := first.Add(time.Duration(offset)*time.Second + later).UTC()
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, first.Location())
	if at.Hour() == wall.Hour() && at.Minute() == wall.Minute() {
		return at
	}
	start, end := at.ZoneBounds()
	if at.Sub(start) < end.Sub(at) {
		return start
	}
	return end
}

func nightly(t *testing.T, zone string, f func(at time.Time)) {
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	for half := range 48 {
		f(time.Date(2026, 1, 5, half/2, half%2*30, 0, 0, loc))
	}
}

// A schedule that misses a run in spring is told so on every day of the year before, whatever the zone. A schedule that misses
// none is told nothing.
func TestAScheduleThatMissesARunInSpringIsToldSo(t *testing.T) {
	var told []string
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		nightly(t, zone, func(at time.Time) {
			daily := Tick{Period: 24 * time.Hour, Offset: UsualOffset(24 * time.Hour), Nearest: true}
			spring := daily.nextSpring(at)
			assert.Equal(t, missed(daily, at) > 0, !spring.IsZero(), at)
			if spring.IsZero() {
				return
			}
			told = append(told, zone+at.Format(" 15:04"))
			for day := at; day.Before(spring); day = day.AddDate(0, 0, 1) {
				assert.Equal(t, spring, daily.nextSpring(day), day)
			}
			assert.False(t, daily.nextSpring(at.AddDate(0, 0, 150)).IsZero(), "also from summer's side of it")
		})
	}
	assert.Equal(t, []string{"Europe/Berlin 13:30", "Europe/Berlin 14:00", "America/New_York 07:30", "America/New_York 08:00", "Australia/Lord_Howe 23:00"}, told)
}

// The same for other periods and any offset.
func TestSchedulesOfAnyPeriodAreToldOfTheSpring(t *testing.T) {
	for _, period := range []time.Duration{61 * time.Minute, 90 * time.Minute, 2 * time.Hour, 8 * time.Hour, 7 * 24 * time.Hour} {
		nightly(t, "Europe/Berlin", func(at time.Time) {
			for offset := time.Duration(0); offset < period; offset += period / 4 {
				tick := Tick{Period: period, Offset: offset.Truncate(time.Second), Nearest: true}
				assert.True(t, !tick.nextSpring(at).IsZero() || missed(tick, at) == 0, "%v at %v", tick, at)
			}
		})
	}
	for zone, period := range map[string]time.Duration{"UTC": 61 * time.Minute, "Europe/Berlin": 20 * time.Minute} {
		nightly(t, zone, func(at time.Time) {
			assert.True(t, Tick{Period: period, Nearest: true}.nextSpring(at).IsZero(), at)
		})
	}
}
