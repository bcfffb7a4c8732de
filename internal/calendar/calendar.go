// Package calendar finds the times that a cron line names in a time zone, such as every day at 3:00 in Berlin.
package calendar

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/spindle-lock/spindle/internal/table"
)

// Line is a cron line in a time zone.
//
// Package cron does not define what happens at times that do not exist, or that occur twice, because clocks were
// changed. Line therefore asks package cron for wall-clock times: times in UTC that have the zone's date and time of
// day. In UTC, every time of day exists and occurs once.
type Line struct {
	times  *cron.SpecSchedule
	zone   *time.Location
	hourly bool // the line names every hour, so a time that occurs twice is due twice, and a skipped time is not due
}

const everyHour = 1<<24 - 1

// Parse returns the line in the time zone. It returns an error if the line is invalid or never comes due.
func Parse(line string, zone *time.Location) (Line, error) {
	if zone == nil {
		return Line{}, errors.New("the time zone is nil; pass time.UTC, or a zone from time.LoadLocation")
	}
	if strings.Contains(line, "TZ=") {
		return Line{}, fmt.Errorf("cron line %q: give the time zone separately, not in the line", line)
	}
	parsed, err := cron.ParseStandard(line)
	if err != nil {
		return Line{}, fmt.Errorf("cron line %q: %w; a line has five fields: minute, hour, day of the month, month, and day of the week (0 to 6, from Sunday)", line, err)
	}
	times, ok := parsed.(*cron.SpecSchedule)
	switch {
	case !ok:
		return Line{}, fmt.Errorf("cron line %q: @every counts from the start of the program, so machines would not agree on the times; use a fixed period instead", line)
	case times.Next(time.Unix(0, 0).UTC()).IsZero():
		return Line{}, fmt.Errorf("cron line %q never comes due: no month that it names has such a day", line)
	}
	return Line{times, zone, times.Hour&everyHour == everyHour}, nil
}

// Due implements table.Schedule. The key is the scheduled time that is nearest to now, in UTC.
func (l Line) Due(now time.Time) (due table.Due, risk string) {
	last, next := l.last(now), l.next(now)
	nearest := last
	if last.IsZero() || !next.IsZero() && next.Sub(now) <= now.Sub(last) {
		nearest = next
	}
	if !last.IsZero() && !next.IsZero() {
		risk = table.Halfway(last, now, next)
	}
	return table.Due{Key: nearest.UTC().Format(time.RFC3339)}, risk
}

// horizon is how far package cron looks for the next time, in minutes.
const horizon = 5 * 366 * 24 * 60

// last returns the last scheduled time that is not after now.
func (l Line) last(now time.Time) time.Time {
	from := func(n int) time.Time { return l.next(now.Add(-time.Duration(n) * time.Minute)) }
	n := sort.Search(horizon, func(n int) bool { next := from(n); return !next.IsZero() && !next.After(now) })
	if n == horizon {
		return time.Time{}
	}
	return from(n)
}

// next returns the first scheduled time after now, or the zero time if there is none for years. It asks package cron
// only about wall-clock times. Between two clock changes, wall-clock times are as far apart as the instants at which
// clocks show them.
func (l Line) next(now time.Time) time.Time {
	from := now.In(l.zone)
	wall := wallOf(from)
	begin, end := from.ZoneBounds()
	if shown := wallOf(begin.Add(-1)); !l.hourly && wall.Before(shown) {
		wall = shown // clocks were set back, so the times up to this one occur twice
	}
	for {
		next := l.times.Next(wall)
		at := from.Add(next.Sub(wallOf(from)))
		switch {
		case next.IsZero():
			return next
		case at.Before(from): // clocks never show it
			return from
		case end.IsZero() || at.Before(end):
			return at
		}
		if wall = next.Add(-1); l.hourly {
			wall = wallOf(end).Add(-1)
		}
		from = end
		_, end = from.ZoneBounds()
	}
}

// wallOf returns what a clock in at's zone shows.
func wallOf(at time.Time) time.Time {
	_, offset := at.Zone()
	return at.UTC().Add(time.Duration(offset) * time.Second)
}
