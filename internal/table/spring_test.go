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
			keys[tick.Key(at.Add(time.Duration(machine)*3*time.Second))] = true
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

// A schedule that misses a run in spring is told so on every day of the year before, whatever the zone, and with the
// offset that it is told it misses none. A schedule that misses none is told nothing.
func TestAScheduleThatMissesARunInSpringIsToldTheOffsetThatMissesNone(t *testing.T) {
	var told []string
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		nightly(t, zone, func(at time.Time) {
			daily := Tick{Period: 24 * time.Hour, Nearest: true}
			daily.Offset = UsualOffset(daily.Period)
			s, loses := daily.NextSpring(at)
			assert.Equal(t, missed(daily, at) > 0, loses, at)
			if !loses {
				return
			}
			told = append(told, zone+at.Format(" 15:04"))
			require.False(t, s.None)
			better := Tick{Period: daily.Period, Offset: s.Offset, Nearest: true}
			assert.Zero(t, missed(better, at), at)
			_, loses = better.NextSpring(at)
			assert.False(t, loses, at)
			for day := at; day.Before(s.At); day = day.AddDate(0, 0, 1) {
				same, _ := daily.NextSpring(day)
				assert.Equal(t, s, same, day)
			}
			summer, loses := daily.NextSpring(at.AddDate(0, 0, 150))
			assert.True(t, loses && summer.Offset == s.Offset, "the same offset from summer's side of it")
		})
	}
	assert.Equal(t, []string{"Europe/Berlin 13:30", "Europe/Berlin 14:00", "America/New_York 07:30", "America/New_York 08:00", "Australia/Lord_Howe 23:00"}, told)
}

// The same for other periods and any offset. If the clocks are set forward by nearly a period, no offset helps.
func TestNoOffsetHelpsIfClocksAreSetForwardByAPeriod(t *testing.T) {
	for _, period := range []time.Duration{90 * time.Minute, 2 * time.Hour, 8 * time.Hour, 7 * 24 * time.Hour} {
		nightly(t, "Europe/Berlin", func(at time.Time) {
			for offset := time.Duration(0); offset < period; offset += period / 4 {
				tick := Tick{Period: period, Offset: offset.Truncate(time.Second), Nearest: true}
				s, loses := tick.NextSpring(at)
				assert.True(t, loses || missed(tick, at) == 0, "%v at %v", tick, at)
				if loses {
					assert.False(t, s.None)
					assert.Zero(t, missed(Tick{Period: period, Offset: s.Offset, Nearest: true}, at), "%v at %v", tick, at)
				}
			}
		})
	}
	nightly(t, "Europe/Berlin", func(at time.Time) {
		s, loses := Tick{Period: 61 * time.Minute, Nearest: true}.NextSpring(at)
		assert.True(t, loses && s.None, at)
	})
	for zone, period := range map[string]time.Duration{"UTC": 61 * time.Minute, "Europe/Berlin": 20 * time.Minute} {
		nightly(t, zone, func(at time.Time) {
			_, loses := Tick{Period: period, Nearest: true}.NextSpring(at)
			assert.False(t, loses, at)
		})
	}
}
