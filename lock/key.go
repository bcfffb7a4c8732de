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

// KeyOf is a key by its name, of 1 to 1024 bytes: a version, a month. Keys are ordered by their bytes, in which v9 comes
// after v10: write numbers with as many digits as the last will need.
func KeyOf(name string) Key { return Key{is: name} }

// Tick is the period that has begun last when Do is called, by Spanner's clock: the clocks of machines don't matter. The
// period is whole seconds. Ticks are counted from Monday, 1 January of the year 1, 0:00 UTC, plus the offset, if one is
// given, which is less than a period: Tick(24*time.Hour, 3*time.Hour) begins each day at 3:00 UTC.
//
// A name may get another period, in a new version of the program, say: what was done with the last one then counts for
// the ticks until it was recorded, and not for later ones. Do says so in the log, once.
//
// At the beginning of a tick, machines whose clocks differ are in two of them. If each calls Do at a time of its own clock,
// as cron does, use Every.
func Tick(period time.Duration, offset ...time.Duration) Key {
	t := table.Tick{Period: period}
	for _, o := range offset {
		t.Offset += o
	}
	return Key{tick: t, err: t.Check()}
}

// Every is for those who call Do on a schedule of their own clock, as cron does: the time of the schedule that is nearest
// by Spanner's clock. Calls for one time have one key as long as the clocks differ from Spanner's by less than half a period.
//
// The times are a period apart, at the given time past the beginning of a Tick: Every(24*time.Hour, 3*time.Hour) is each
// day at 3:00 UTC, and Run.Key says 3:00. The schedule may leave some out: Every(24*time.Hour, 3*time.Hour) is also right
// for Mondays at 3:00, and Every(8*time.Hour, time.Hour) for 9:00 and 17:00.
//
// Half-way between two times is where the key changes: a schedule must be far from that, also one of a zone that is no
// full hours from UTC. The full hours of Asia/Kolkata, 5:30 from UTC, are Every(time.Hour, 30*time.Minute). Do warns in
// the log, once for each Once, of calls that are within a fiftieth of the period, or five minutes, of the change.
//
// A call more than half a period late is for the next time: with Every(24*time.Hour, 3*time.Hour), one at 16:00 does what
// is due at 3:00 on the next day, and nothing runs then. To run what was missed, before a later one is done, give its time: KeyOf("2026-11-21T03:00:00Z").
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

// due is what is to be done at a time of Spanner's clock.
func (k Key) due(now time.Time) table.Due { return table.Due{Key: k.at(now), Period: k.tick.Period} }

// at is the key at a time of Spanner's clock.
func (k Key) at(now time.Time) string {
	if k.tick.Period == 0 {
		return k.is
	}
	return k.tick.Key(now)
}
