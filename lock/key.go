package lock

import (
	"time"

	"github.com/spindle-lock/spindle/internal/calendar"
	"github.com/spindle-lock/spindle/internal/table"
)

// Key identifies a piece of a Once's work.
type Key struct {
	schedule table.Schedule
	err      error
}

// KeyOf returns a key with the given name, such as a version or a month. The name must be 1 to 1024 bytes of UTF-8
// without control characters. Keys are ordered by their bytes, so v9 comes after v10. Pad numbers with zeros to the
// same number of digits, as in v09.
func KeyOf(name string) Key { return Key{table.Named(name), table.CheckDone(name)} }

// Tick returns a key for the period in which Do is called. The time comes from Spanner's clock, so the clocks of the
// machines do not matter. Periods are counted from Monday, 1 January of the year 1, 0:00 UTC, plus an optional offset,
// which must be shorter than a period. The period and the offset must be whole numbers of seconds. For example, the
// periods of Tick(24*time.Hour, 3*time.Hour) begin each day at 3:00 UTC.
//
// You can change the period, for example in a new version of the program. A key of the new schedule then counts as
// passed only if it is smaller than the last key, and its period had begun when the last key was recorded. All later
// keys run as usual. Do logs the change once.
//
// If each machine decides by its own clock when to call Do, as cron does, use Every instead. With Tick, machines whose
// clocks differ slightly could call Do in different periods if they call around the beginning of a period.
func Tick(period time.Duration, offset ...time.Duration) Key {
	return keyOf(table.Tick{Period: period}, offset)
}

// Every returns a key for callers that follow a schedule by their own clocks, as cron does. The key is the scheduled
// time that is nearest to the call, by Spanner's clock. Calls for the same scheduled time get the same key if the
// callers' clocks differ from Spanner's by less than half a period.
//
// The scheduled times are the beginnings of the periods of a Tick with the same arguments. For example,
// Every(24*time.Hour, 3*time.Hour) means 3:00 UTC each day, and Run.Key returns that time. Callers may skip scheduled
// times.
//
// The key changes halfway between two scheduled times, so calls must not come close to that point. If the period is a
// minute or longer, Do logs a warning, once for each Once, if a call comes within period/50 (at most five minutes) of
// that point. It also warns if, when clocks are next set forward, two consecutive calls at this local time of day could
// get the same key. For schedules by local time, use Cron instead.
//
// A call always gets the key of the nearest scheduled time, even if that time is in the future. With
// Every(24*time.Hour, 3*time.Hour), a call at 16:00 UTC does the work that is due at 3:00 on the next day, and the call
// at 3:00 then does nothing. To make up for missed work, pass its scheduled time as a key, such as
// KeyOf("2026-11-21T03:00:00Z"), before the work for a later time is done.
func Every(period time.Duration, at ...time.Duration) Key {
	return keyOf(table.Tick{Period: period, Nearest: true}, at)
}

func keyOf(t table.Tick, offset []time.Duration) Key {
	for _, o := range offset {
		t.Offset += o
	}
	return Key{t, t.Check()}
}

// Cron returns a key for the times that a cron line names in a time zone: Cron("0 3 * * *", berlin) means 3:00 in
// Berlin each day, in winter and in summer. As with Every, the key is the scheduled time, in UTC, that is nearest to
// the call by Spanner's clock. It therefore does no harm if a machine's clock is a second fast. All machines get the
// same key if they have the same line, zone and time zone data.
//
// A line has the fields minute, hour, day of the month, month and day of the week, with names, lists, ranges and steps.
// Shorthands such as @daily are also allowed. Do returns an error if the line is invalid or never comes due. When
// clocks are set forward or back, these rules apply:
//
//   - A time that does not exist counts as the time of the change: if clocks are set forward from 2:00 to 3:00, 2:30
//     means 3:00.
//   - A time that occurs twice has a key only the first time.
//   - If a line names every hour, as */5 * * * * does, a time that occurs twice has two keys instead, and a time that
//     does not exist has none.
//
// A call halfway between two scheduled times suggests that the caller's timer follows another line or zone. As with
// Every, Do logs a warning.
//
// If you change the line, keys for times before the last key that was done count as passed.
func Cron(line string, zone *time.Location) Key {
	l, err := calendar.Parse(line, zone)
	return Key{l, err}
}

// Name makes the name of a lock from parts, such as a target and a context: Name("router-7", "snmp-query"). Two
// different lists of parts never make the same name. Name joins the parts with slashes. In each part, it escapes every
// character except ASCII letters, digits and -_.~$&+=:@. If the name would end in an underscore and 16 or more digits,
// it also escapes that underscore.
func Name(parts ...string) string { return table.Join(parts...) }
