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

// KeyOf returns a key with the given name, such as a version or a month. The name must be 1 to 1024 bytes. Keys are
// ordered by their bytes, so v9 comes after v10. Pad numbers with zeros to the same number of digits, as in v09.
func KeyOf(name string) Key { return Key{is: name} }

// Tick returns a key for the period in which Do is called. The time comes from Spanner's clock, so the clocks of the
// machines do not matter. The period must be a whole number of seconds. Periods are counted from Monday, 1 January of
// the year 1, 0:00 UTC, plus an optional offset, which must be shorter than a period. For example, the periods of
// Tick(24*time.Hour, 3*time.Hour) begin each day at 3:00 UTC.
//
// The period for a name can change, for example in a new version of the program. Ticks of the new period then count as
// passed if they began before the last key was recorded. Later ticks run as usual. Do logs the change once.
//
// If each machine calls Do at times by its own clock, as cron does, use Every instead. With Tick, machines whose clocks
// differ slightly could call Do in different periods if they call around the beginning of a period.
func Tick(period time.Duration, offset ...time.Duration) Key {
	t := table.Tick{Period: period}
	for _, o := range offset {
		t.Offset += o
	}
	return Key{tick: t, err: t.Check()}
}

// Every returns a key for callers that follow a schedule by their own clocks, as cron does. The key is the scheduled
// time that is nearest to the call, by Spanner's clock. Calls for the same scheduled time get the same key if the
// callers' clocks differ from Spanner's by less than half a period.
//
// The scheduled times are one period apart, each at the given time after the beginning of a Tick. For example,
// Every(24*time.Hour, 3*time.Hour) stands for 3:00 UTC each day, and Run.Key returns that time. The callers do not have
// to call at each of these times. The same key is right for a job that runs on Mondays at 3:00, and Every(8*time.Hour,
// time.Hour) is right for a job that runs at 9:00 and 17:00.
//
// The key changes half-way between two scheduled times, so calls must not come close to that point. Check this in time
// zones whose offset from UTC is not a whole number of hours. For example, calls on the hour in Asia/Kolkata (UTC+5:30)
// need Every(time.Hour, 30*time.Minute). Daylight saving time must not move calls across that point either. Do logs a
// warning, once for each Once, if a call comes within a fiftieth of the period before or after the change, or within
// five minutes if that is shorter, or would do so after the next changes of the machine's time zone.
//
// A call always counts for the nearest scheduled time, even if that time is still to come. With Every(24*time.Hour,
// 3*time.Hour), a call at 16:00 does the work that is due at 3:00 on the next day, and the call at 3:00 then does
// nothing. To make up for missed work, pass its scheduled time as a key, such as KeyOf("2026-11-21T03:00:00Z"), before
// the work for a later time is done.
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

// due returns the key for the time now by Spanner's clock, with its period.
func (k Key) due(now time.Time) table.Due { return table.Due{Key: k.at(now), Period: k.tick.Period} }

// at returns the key for the time now by Spanner's clock.
func (k Key) at(now time.Time) string {
	if k.tick.Period == 0 {
		return k.is
	}
	return k.tick.Key(now)
}
