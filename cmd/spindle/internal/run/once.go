package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/calendar"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

const onceHelp = `
With --every, --cron or --once, you can start exec on all machines, for example
from cron, and CMD runs on only one of them. With --every 24h, it runs once a
day. With --cron LINE, it runs once for each time that the cron line names. With
--once KEY, it runs once for that key. Exec on the other machines waits until
the work is done. It then exits with 0, or with the code that --already sets.

The work is done when CMD exits with 0. The commit that releases the lock also
records that the work is done. If CMD fails, is killed, or loses the lock, the
work is not done, and another exec runs CMD: one that is already waiting, or the
next one that is started.

CMD gets the key in SPINDLE_KEY. With --cron, or with --every and --offset, the
key is the time at which your timers should start exec, in UTC. With --every but
without --offset, the key only identifies the period. With --every 24h, for
example, a run after 12:07:30 UTC gets a key with the next day's date.

Once a key is done, an exec with a smaller key exits as if its own key were
done, even if CMD never ran for it. Don't use --once for work that must be done
for every key. Keys are compared byte by byte, so v9 is larger than v10. After a
change of --every, CMD still runs for a smaller key if the key's time is later
than the time at which the last key was recorded.

With --cron '0 3 * * *' --tz Europe/Berlin, each day has its own key, and there
is nothing else to set. Unless the line names every hour, a time that is skipped
when clocks are set forward counts as the time of the change, and a time that
occurs twice has a key only the first time. On all machines, give exec the line
and the zone that the timers use. Exec runs CMD for the nearest scheduled time,
by Spanner's clock, even if that time is still in the future.

By default, daily and hourly periods end at times when few timers fire: at
12:07:30 UTC with --every 24h, and at 37 minutes and 30 seconds past the hour
with --every 1h. If your timers fire close to the end of a period, set --offset
to the time at which they fire, in UTC, such as 12h. They then fire in the
middle of a period.

Exec prints a warning if it starts close to the time at which the key changes.
With --every, it also warns if two consecutive starts at the same local time of
day would get the same key when clocks are set forward in the zone of TZ.
`

// once is the work that exec does once for each key.
type once struct {
	named      string // the key of --once
	tick       table.Tick
	line, zone string         // of --cron and --tz
	schedule   table.Schedule // determines the key; nil without these flags
	already    int            // the exit code if the key was already done
	retry      elect.Backoff
	pause      loop.Pause
}

func (o *once) flags(f *pflag.FlagSet) {
	f.DurationVar(&o.tick.Period, "every", 0, "run CMD once in each `period`, such as 24h; once CMD has succeeded, further starts of exec in the same period do nothing, on any machine")
	f.StringVar(&o.named, "once", "", "run CMD once for this `key`, even if several machines start exec")
	f.DurationVar(&o.tick.Offset, "offset", 0, "when your timers start exec, as the `time` since 0:00 UTC (for weekly periods, since Monday 0:00 UTC)")
	f.Lookup("offset").DefValue = "7m30s, or 0 if --every is less than 30m"
	f.StringVar(&o.line, "cron", "", "run CMD once for each time that this cron `line` names, such as '0 3 * * *'")
	f.StringVar(&o.zone, "tz", "UTC", "the time `zone` of --cron, such as Europe/Berlin")
	f.IntVar(&o.already, "already", 0, "exit with this `code`, such as 77, if the key or a larger one was already done")
	terminal.OnlyOnCommandLine(f, "every", "once", "offset", "cron", "tz", "already") // --every has a different meaning in other commands
}

// checkOnce looks for mistakes on the command line.
func (x *execution) checkOnce() error {
	o, given := &x.once, x.own.Changed
	ways := slices.DeleteFunc([]string{"--every", "--cron", "--once"}, func(way string) bool { return !given(way[2:]) })
	switch {
	case len(ways) > 1:
		return terminal.Misuse("give either %s or %s, not both", ways[0], ways[1])
	case given("offset") && !given("every"):
		return terminal.Misuse("--offset %v requires --every", o.tick.Offset)
	case given("tz") && !given("cron"):
		return terminal.Misuse("--tz %s requires --cron", o.zone)
	case given("already") && len(ways) == 0:
		return terminal.Misuse("--already %d requires --every, --cron or --once", o.already)
	case len(ways) == 0:
		return nil
	case x.restart:
		return terminal.Misuse("--restart is for programs that run forever. With %s, let cron or another timer start exec each time", ways[0])
	case x.handover:
		return terminal.Misuse("--handover is for programs that run forever. With %s, a handover would interrupt CMD, and another machine would run it again from the beginning", ways[0])
	case o.already < 0 || o.already == terminal.Failed || o.already == terminal.Misused || o.already == NotInTime || o.already == Lost || o.already > 125:
		return terminal.Misuse("--already %d: must be 0, or a code from 3 to 125 such as 77, but not %d or %d, which exec itself uses", o.already, NotInTime, Lost)
	}
	return o.schedules(ways[0], given("offset"))
}

// schedules sets the schedule that the given flag describes.
func (o *once) schedules(flag string, hasOffset bool) (err error) {
	switch flag {
	case "--once":
		o.schedule, err = table.Named(o.named), table.CheckDone(o.named)
	case "--cron":
		zone, unknown := time.LoadLocation(o.zone)
		if unknown != nil {
			return terminal.Misuse("--tz %s: %w; give a name such as Europe/Berlin", o.zone, unknown)
		}
		o.schedule, err = calendar.Parse(o.line, zone)
	default:
		o.tick.Nearest = true
		if !hasOffset {
			o.tick.Offset = table.UsualOffset(o.tick.Period)
		}
		o.schedule, err = o.tick, o.tick.Check()
	}
	if err != nil {
		return terminal.Misuse("%s: %w", flag, err)
	}
	return nil
}

// beginOnce limits the pause after a failed read of the last completed key, and the pause before exec repeats work that
// has failed in another process.
func (x *execution) beginOnce() {
	x.once.retry.Max = x.lease / 3
	x.once.pause = loop.Pause{Clock: x.candidate.Clock}
	if !x.atOnce {
		x.once.pause.Longest = loop.LongestPause(x.lease)
	}
}

// glance reads the last completed key before exec competes for the lock. If CMD must not run, exec exits without
// verifying the table or polling the lock. If Spanner can't be read, glance returns nil, because exec reads the key
// again later.
func (x *execution) glance(ctx context.Context) error {
	terminal.Stderr.Time()
	ctx, cancel := context.WithTimeout(ctx, x.readTimeout())
	defer cancel()
	var over *terminal.Exit
	if err := x.choose(ctx); errors.As(err, &over) {
		return err
	}
	return nil
}

// choose reads the last completed key and chooses the key for CMD. If CMD must not run, it returns a *terminal.Exit.
func (x *execution) choose(ctx context.Context) error {
	last, now, err := x.last(ctx, table.Present)
	if err != nil {
		return err
	}
	var risk string
	if x.todo, risk = x.once.schedule.Due(now.Local()); risk != "" {
		x.complainOf("%s. To prevent this, tell exec when your timers fire: --cron LINE --tz ZONE, or --offset if they follow UTC", risk)
	}
	x.once.pause.Asked(last, now)
	if last.OtherPeriod(x.todo) {
		x.say("%s: the last completed key, %s, was recorded with --every %s. Because the period has changed, a smaller key counts as done only if its time came before the last key was recorded", x.name, terminal.Show(last.Key), terminal.Brief(last.Period))
	}
	return x.unless(last, now)
}

// last reads the last completed key, and the time by Spanner's clock.
func (x *execution) last(ctx context.Context, bound table.Bound) (table.Done, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, elect.Attempt(x.lease))
	defer cancel()
	last, now, err := x.candidate.Table.Done(ctx, bound, x.name)
	switch {
	case errors.Is(err, table.ErrGarbled):
		err = &terminal.Exit{Code: terminal.Failed, Err: fmt.Errorf("%s: %w", x.name, err)}
	case err != nil:
		err = fmt.Errorf("can't read the last completed key: %w", err)
	}
	return last, now, err
}

// unless checks whether CMD may run. It returns a *terminal.Exit if the key is already done, counts as done because of
// a larger key, or can't be compared with the last completed key.
func (x *execution) unless(last table.Done, now time.Time) error {
	err := last.Forbids(x.todo)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, table.ErrDone):
		x.say("%s: %s was already done, %s", x.name, x.todo.Key, model.WhenDone(last, now))
	case errors.Is(err, table.ErrPassed):
		x.say("%s: skipping %s because the larger key %s was done %s. It is not known whether %s ever ran", x.name, x.todo.Key, terminal.Show(last.Key), model.WhenDone(last, now), x.todo.Key)
	default:
		return &terminal.Exit{Code: terminal.Failed, Err: fmt.Errorf("%s: %w", x.name, err)}
	}
	return &terminal.Exit{Code: x.once.already}
}

// step polls the lock once, and claims it if possible. If the key is not known yet, step chooses the key first.
func (x *execution) step(ctx context.Context) elect.Step {
	if !x.once.wanted() {
		return x.candidate.Try(ctx, x.claims(), 0)
	}
	if x.todo.Key == "" {
		if err := x.choose(ctx); err != nil {
			return elect.Step{Err: err, Pause: x.once.retry.Pause(x.candidate.Clock)}
		}
	}
	look := func() (table.Done, time.Time, error) { return x.last(ctx, table.Present) }
	return x.candidate.Try(ctx, x.once.pause.Choose(look, x.unless), 0)
}

// wanted reports whether exec has work to do once.
func (o *once) wanted() bool { return o.schedule != nil }

// due returns an error unless CMD still has to run. It reads the last completed key again, because the last holder may
// have recorded a key just before this process acquired the lock. While this process holds the lock, no other process
// can record a key.
func (x *execution) due(ctx context.Context) error {
	last, now, err := x.last(ctx, table.Strong)
	if err == nil {
		err = x.unless(last, now)
	}
	return err
}
