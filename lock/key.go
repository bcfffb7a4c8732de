package lock

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Key identifies a piece of a Once's work.
type Key struct {
	is   string
	tick table.Tick // if the period is zero, the key is not a tick
	err  error
}

// KeyOf returns the key with the given name of 1 to 1024 bytes, such as a version or a month. Keys are ordered by their
// bytes, so v9 comes after v10. Write numbers with as many digits as the last one will need.
func KeyOf(name string) Key { return Key{is: name} }

// Tick returns a key for the period in which Do is called, by Spanner's clock, so the clocks of the machines do not
// matter. The period must be whole seconds. Periods are counted from Monday, 1 January of the year 1, 0:00 UTC, plus an
// optional offset, which must be shorter than a period. For example, the periods of Tick(24*time.Hour, 3*time.Hour)
// begin each day at 3:00 UTC.
//
// The period for a name can change, for example in a new version of the program. The last key done with the old period
// then counts for the ticks up to the time at which it was recorded, and not for later ones. Do logs this once.
//
// If each machine calls Do at a time of its own clock, as cron does, use Every. With Tick, two machines whose clocks
// differ can call Do in different periods if they call around the beginning of a period.
func Tick(period time.Duration, offset ...time.Duration) Key {
	t := table.Tick{Period: period}
	for _, o := range offset {
		t.Offset += o
	}
	return Key{tick: t, err: t.Check()}
}

// Every returns a key for callers that follow a schedule by their own clocks, as cron does. The key is the scheduled
// time that is nearest to the call, by Spanner's clock. Calls for the same scheduled time have the same key as long as
// the callers' clocks differ from Spanner's by less than half a period.
//
// The scheduled times are one period apart, each at the given time after the beginning of a Tick. For example,
// Every(24*time.Hour, 3*time.Hour) is 3:00 UTC each day, and Run.Key returns that time. A schedule can skip some of
// these times: Every(24*time.Hour, 3*time.Hour) is also right for Mondays at 3:00, and Every(8*time.Hour, time.Hour)
// for 9:00 and 17:00.
//
// The key changes half-way between two scheduled times, so calls must be far from that point. Take care in time zones
// that are not a whole number of hours from UTC. For calls at the full hours of Asia/Kolkata, which is 5:30 from UTC,
// use Every(time.Hour, 30*time.Minute). If a call is too close to the change, Do logs a warning, once for each Once.
// Too close means within a fiftieth of the period, or within five minutes if that is shorter.
//
// Because a call counts for the nearest scheduled time, a call at 16:00 with Every(24*time.Hour, 3*time.Hour) does the
// work that is due at 3:00 on the next day, and nothing runs at 3:00. To run work that was missed, pass its time as a
// key, such as KeyOf("2026-11-21T03:00:00Z"), before the work of a later time has been done.
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

// due returns the key at a time of Spanner's clock, with its period.
func (k Key) due(now time.Time) table.Due { return table.Due{Key: k.at(now), Period: k.tick.Period} }

// at returns the key at a time of Spanner's clock.
func (k Key) at(now time.Time) string {
	if k.tick.Period == 0 {
		return k.is
	}
	return k.tick.Key(now)
}
