package lock

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Key says what a Once is to do.
type Key struct {
	is   string
	tick table.Tick // none: its period is zero
	err  error
}

// KeyOf returns a key by its name, of 1 to 1024 bytes: a version, a month. Keys are ordered by their bytes, so v9 comes
// after v10: write numbers with as many digits as the last one will need.
func KeyOf(name string) Key { return Key{is: name} }

// Tick returns a key for the period that contains the time of the call of Do, by Spanner's clock: machines' clocks
// don't matter. The period is whole seconds. Ticks are counted from Monday, 1 January of the year 1, 0:00 UTC, plus an
// optional offset, which is less than a period: Tick(24*time.Hour, 3*time.Hour) begins each day at 3:00 UTC.
//
// A name may get another period, for example in a new version of the program. What was done last with the old period
// then counts for the ticks until it was recorded, and not for later ones. Do logs this once.
//
// At the beginning of a tick, machines whose clocks differ are in two different ticks. If each calls Do at a time of
// its own clock, as cron does, use Every.
func Tick(period time.Duration, offset ...time.Duration) Key {
	t := table.Tick{Period: period}
	for _, o := range offset {
		t.Offset += o
	}
	return Key{tick: t, err: t.Check()}
}

// Every returns a key for callers that follow a schedule by their own clock, as cron does: the nearest time of the
// schedule, by Spanner's clock. Calls for one time have one key as long as the clocks differ from Spanner's by less
// than half a period.
//
// The times are a period apart, at the given time past the beginning of a Tick: Every(24*time.Hour, 3*time.Hour) is
// each day at 3:00 UTC, and Run.Key says 3:00. The schedule may leave some out: Every(24*time.Hour, 3*time.Hour) is
// also right for Mondays at 3:00, and Every(8*time.Hour, time.Hour) for 9:00 and 17:00.
//
// The key changes half-way between two times. A schedule must be far from that, even in a zone that is no full hours
// from UTC. The full hours of Asia/Kolkata, 5:30 from UTC, are Every(time.Hour, 30*time.Minute). Do logs a warning,
// once for each Once, for calls within a fiftieth of the period, or five minutes, of the change.
//
// A call counts for the nearest scheduled time. With Every(24*time.Hour, 3*time.Hour), a call at 16:00 does what is due
// at 3:00 on the next day, and nothing runs then. To run what was missed, before a later time is done, give its time:
// KeyOf("2026-11-21T03:00:00Z").
func Every(period time.Duration, at ...time.Duration) Key {
	k := Tick(period, at...)
	k.tick.Nearest = true
	return k
}

func (k Key) check() error {
	if k.tick.Period == 0 && k.err == nil {
		return table.CheckDone(k.is)
	}
	return k.err
}

// due returns what to do at a time of Spanner's clock.
func (k Key) due(now time.Time) table.Due { return table.Due{Key: k.at(now), Period: k.tick.Period} }

// at returns the key at a time of Spanner's clock.
func (k Key) at(now time.Time) string {
	if k.tick.Period == 0 {
		return k.is
	}
	return k.tick.Key(now)
}
