package calendar

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func zoneOf(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	require.NoError(t, err)
	return zone
}

func nearest(l Line, now time.Time) string {
	due, _ := l.Due(now)
	return due.Key
}

// Each day has exactly one key of a daily line, whatever its time and whatever is done to clocks. Machines whose clocks
// are off by less than half a day agree on it, and the key is at the line's time, unless that does not exist.
func TestEachDayHasOneKey(t *testing.T) {
	for name, missing := range map[string]int{"Europe/Berlin": 2, "Australia/Lord_Howe": 1, "Africa/Cairo": 2} { // clocks change by 1 h, by 30 min, and at midnight
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone := zoneOf(t, name)
			moved := 0
			for half := range 48 {
				line, err := Parse(fmt.Sprintf("%d %d * * *", half%2*30, half/2), zone)
				require.NoError(t, err)
				at := line.next(time.Date(2025, 12, 31, 23, 59, 0, 0, zone))
				for day := time.Date(2026, 1, 1, 12, 0, 0, 0, zone); day.Year() == 2026; day = day.AddDate(0, 0, 1) {
					local, next := at.In(zone), line.next(at)
					require.Equal(t, day.Format(time.DateOnly), local.Format(time.DateOnly), "%v: a day without a key, or with two", half)
					if local.Hour()*2+local.Minute()/30 != half || local.Minute()%30 != 0 {
						begin, _ := local.ZoneBounds()
						require.Equal(t, begin.UTC(), at.UTC(), "%v: not the time of the line", half)
						moved++
					}
					apart := next.Sub(at)
					require.InDelta(t, 24*time.Hour, apart, float64(time.Hour))
					for _, call := range []time.Time{at.Add(-time.Second), at.Add(apart/2 - 1)} {
						require.Equal(t, at.UTC().Format(time.RFC3339), nearest(line, call), "a call at %v", call)
					}
					at = next
				}
			}
			assert.Equal(t, missing, moved, "times that do not exist in spring")
		})
	}
}

// Two machines whose clocks are a second apart agree on each time of a line that names every hour, also on the days on which
// there is no midnight, or two.
func TestMachinesAgreeOnALineThatNamesEveryHour(t *testing.T) {
	for _, c := range []struct{ zone, line, from string }{
		{"Africa/Cairo", "*/5 * * * FRI", "2027-04-26"}, {"Africa/Cairo", "0 * * * 4,5", "2027-10-26"}, {"Asia/Beirut", "0 * 28 * *", "2027-03-24"},
	} {
		zone := zoneOf(t, c.zone)
		line, err := Parse(c.line, zone)
		require.NoError(t, err)
		from, err := time.ParseInLocation(time.DateOnly, c.from, zone)
		require.NoError(t, err)
		times := 0
		for at := from; at.Before(from.AddDate(0, 0, 8)); at = at.Add(time.Minute) {
			if wall := wallOf(at.In(zone)); line.times.Next(wall.Add(-time.Second)).Equal(wall) {
				times++
				require.Equal(t, at.UTC().Format(time.RFC3339), nearest(line, at.Add(-time.Second)), "%v in %s", c.line, c.zone)
				require.Equal(t, at.UTC().Format(time.RFC3339), nearest(line, at.Add(time.Second)), "%v in %s", c.line, c.zone)
			}
		}
		assert.Greater(t, times, 22)
	}
}

// Calls halfway between two times of a line are too close to the point at which the key changes.
func TestACallHalfwayBetweenTwoTimes(t *testing.T) {
	leap, err := Parse("0 0 29 2 *", time.UTC)
	require.NoError(t, err)
	for year := 2097; year < 2104; year++ {
		_, risk := leap.Due(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		assert.Empty(t, risk, year)
	}
	line, err := Parse("0 * * * *", time.UTC)
	require.NoError(t, err)
	for now, want := range map[string]bool{"05:28:40": false, "05:28:50": true, "05:30:00": true, "05:31:10": true, "05:31:20": false, "05:00:00": false} {
		at, err := time.Parse(time.DateTime, "2027-01-05 "+now)
		require.NoError(t, err)
		_, risk := line.Due(at)
		assert.Equal(t, want, risk != "", now)
	}
}

// What a line means, at the times that summer time leaves out and repeats, and otherwise.
func TestTheNearestTimeOfALine(t *testing.T) {
	for _, c := range []struct{ line, zone, now, want string }{
		{"0 3 * * *", "UTC", "2026-11-21T02:59:59Z", "2026-11-21T03:00:00Z"},
		{"0 3 * * *", "UTC", "2026-11-21T14:59:59Z", "2026-11-21T03:00:00Z"},
		{"0 3 * * *", "UTC", "2026-11-21T15:00:00Z", "2026-11-22T03:00:00Z"},
		{"0 3 * * *", "Europe/Berlin", "2026-01-05T02:00:00Z", "2026-01-05T02:00:00Z"},
		{"0 3 * * *", "Europe/Berlin", "2026-07-05T01:00:00Z", "2026-07-05T01:00:00Z"},
		{"30 9,17 * * MON-FRI", "Europe/Berlin", "2026-01-10T12:00:00Z", "2026-01-09T16:30:00Z"}, // a Saturday
		{"0 0 1 * *", "Asia/Kolkata", "2026-01-15T00:00:00Z", "2025-12-31T18:30:00Z"},
		{"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z", "2096-02-29T00:00:00Z"}, // the next one is too far away to be found
		{"0 0 29 2 *", "UTC", "2103-01-01T00:00:00Z", "2104-02-29T00:00:00Z"}, // and so is the last one
		{"@weekly", "UTC", "2026-11-22T01:00:00Z", "2026-11-22T00:00:00Z"},
		// In Berlin, 29 March has no time from 2:00 to 3:00.
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T01:30:00Z", "2026-03-29T01:00:00Z"},
		{"30 3 * * *", "Europe/Berlin", "2026-03-29T01:30:00Z", "2026-03-29T01:30:00Z"},
		{"30 2,3 * * *", "Europe/Berlin", "2026-03-29T01:16:00Z", "2026-03-29T01:30:00Z"},
		{"*/10 * * * *", "Europe/Berlin", "2026-03-29T01:04:00Z", "2026-03-29T01:00:00Z"},
		// On 25 October, it has the times from 2:00 to 3:00 twice.
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:30:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T00:30:00Z"},
		{"0,30 2,3 * * *", "Europe/Berlin", "2026-10-25T01:14:00Z", "2026-10-25T00:30:00Z"},
		{"0,30 2,3 * * *", "Europe/Berlin", "2026-10-25T01:46:00Z", "2026-10-25T02:00:00Z"},
		{"25,55 2,3 * * *", "Europe/Berlin", "2026-10-25T01:50:00Z", "2026-10-25T02:25:00Z"},
		{"*/10 * * * *", "Europe/Berlin", "2026-10-25T01:24:00Z", "2026-10-25T01:20:00Z"},
		{"0 * * * *", "Europe/Berlin", "2026-10-25T01:00:00Z", "2026-10-25T01:00:00Z"},
		// A line that names every hour follows what clocks show; others count a time that does not exist.
		{"30 * * * *", "Europe/Berlin", "2026-03-29T01:01:00Z", "2026-03-29T01:30:00Z"},
		{"30 * * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", "2026-03-29T00:30:00Z"},
		{"30 0-22 * * *", "Europe/Berlin", "2026-03-29T01:01:00Z", "2026-03-29T01:00:00Z"},
		{"30 0-22 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-25T00:30:00Z"},
		{"30 * * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-25T01:30:00Z"},
		// In Apia, 30 December 2011 was left out.
		{"0 12 * * *", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"0 12 * * *", "Pacific/Apia", "2011-12-30T20:00:00Z", "2011-12-30T22:00:00Z"},
	} {
		line, err := Parse(c.line, zoneOf(t, c.zone))
		require.NoError(t, err)
		now, err := time.Parse(time.RFC3339, c.now)
		require.NoError(t, err)
		assert.Equal(t, c.want, nearest(line, now), "%s in %s at %s", c.line, c.zone, c.now)
	}
}

func TestALineThatIsWrongIsRefusedAndSaysWhy(t *testing.T) {
	for line, says := range map[string]string{
		"0 0 30 2 *":                   "never comes due",
		"0 0 31 4,6,9,11 *":            "never comes due",
		"":                             "empty",
		"0 3 * *":                      "five fields",
		"0 0 3 * * *":                  "five fields",
		"60 3 * * *":                   "above maximum",
		"x 3 * * *":                    `"x 3 * * *"`,
		"@every 1h":                    "machines would not agree",
		"TZ=Europe/Berlin":             "separately, not in the line",
		"CRON_TZ=Asia/Tokyo 0 3 * * *": "separately, not in the line",
	} {
		_, err := Parse(line, time.UTC)
		assert.ErrorContains(t, err, says, line)
	}
	_, err := Parse("0 3 * * *", nil)
	assert.ErrorContains(t, err, "the time zone is nil")
}
