package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

const onceHelp = `
With --every or --once, you can start exec on all machines, for example from
cron, and CMD runs on only one of them. With --every 24h, it runs once a day.
With --once KEY, it runs once for that key. The other machines wait until the
work is done. They then exit with 0, or with the code that --already sets.

The work is done when CMD exits with 0. The commit that releases the lock also
records that the work is done. If CMD fails, is killed, or loses the lock, the
work is not done, and another exec runs CMD: one that is already waiting, or the
next one that is started.

CMD gets the key in SPINDLE_KEY. With --every and --offset, the key is the time
at which the timers fire. Without --offset, the key only identifies the period.
If CMD runs late at night, the key may have the next day's date.

After a key is done, CMD never runs for a smaller one. An exec with a smaller
key exits as if that key were done, even if CMD never ran for it. So don't use
--once for work that must be done for every key. Keys are compared byte by byte,
so v9 is larger than v10.

The periods of --every follow Spanner's clock, not the machines' clocks. They
end at times when few cron jobs start: at 12:07:30 UTC with 24h, and at 37
minutes and 30 seconds past the hour with 1h. Cron jobs that start at the same
time on all machines are therefore in the same period. If exec starts close to
the end of a period, it prints a warning. You should then set --offset to the
time at which your cron job starts, in UTC, such as 12h. The job then starts in
the middle of a period. exec also prints a warning, with an offset, if daylight
saving time in the zone of TZ would move the job across the end of a period.
`

// once is the work that exec does once for each key.
type once struct {
	named   string     // the key of --once
	tick    table.Tick // determines the key, unless the period is zero
	already int        // the exit code if the key was already done
	retry   elect.Backoff
	pause   loop.Pause
}

func (o *once) flags(f *pflag.FlagSet) {
	f.DurationVar(&o.tick.Period, "every", 0, "run CMD once in each `period`, such as 24h; further starts of exec in the period do nothing, on any machine")
	f.StringVar(&o.named, "once", "", "run CMD once for this `key`, even if several machines start exec")
	f.DurationVar(&o.tick.Offset, "offset", 0, "when your timers start exec, as the `time` since 0:00 UTC (for weekly periods, since Monday 0:00 UTC)")
	f.Lookup("offset").DefValue = "0, or 7m30s"
	f.IntVar(&o.already, "already", 0, "exit with this `code`, such as 77, if the key or a larger one was already done")
	flags.OnlyOnCommandLine(f, "every", "once", "offset", "already") // --every has a different meaning in other commands
}

// checkOnce looks for mistakes on the command line.
func (x *execution) checkOnce() error {
	o, given := &x.once, x.own.Changed
	switch {
	case given("every") && given("once"):
		return exit.Misuse("give either --every or --once, not both")
	case given("offset") && !given("every"):
		return exit.Misuse("--offset %v requires --every", o.tick.Offset)
	case given("already") && !given("every") && !given("once"):
		return exit.Misuse("--already %d requires --every or --once", o.already)
	case !given("every") && !given("once"):
		return nil
	case x.restart:
		return exit.Misuse("--restart is for programs that run forever. With --every or --once, start exec again, for example from cron")
	case x.handover:
		return exit.Misuse("--handover is for programs that run forever. With --every or --once, a handover would interrupt CMD, and another machine would run it again from the beginning")
	case o.already < 0 || o.already == exit.Failed || o.already == exit.Misused || o.already == NotInTime || o.already == Lost || o.already > 125:
		return exit.Misuse("--already %d: must be 0, or a code from 3 to 125 such as 77, but not %d or %d, which exec itself uses", o.already, NotInTime, Lost)
	case given("once"):
		if err := table.CheckDone(o.named); err != nil {
			return exit.Misuse("--once: %w", err)
		}
		return nil
	}
	o.tick.Nearest = true
	if !given("offset") {
		o.tick.Offset = table.UsualOffset(o.tick.Period)
	}
	if err := o.tick.Check(); err != nil {
		return exit.Misuse("--every: %w", err)
	}
	return nil
}

// ofTomorrow reports whether a daily run at the given time gets a key with the next day's date. This can happen late in
// the day. ofTomorrow also returns the value of --offset that prevents it.
func ofTomorrow(t table.Tick, now time.Time) (time.Duration, bool) {
	now = now.UTC()
	offset := now.Sub(now.Truncate(24 * time.Hour)).Round(time.Minute)
	return offset, t.Period == 24*time.Hour && t.Begin(now).Day() != now.Day() && t.Begin(now).After(now)
}

// aboutSpring says when CMD does not run because clocks are set forward, and how to prevent it.
func aboutSpring(s table.Spring, period time.Duration, now time.Time) string {
	advice := "To prevent this, set --offset " + terminal.Brief(s.Offset) + " on all machines"
	if s.None {
		advice = "No --offset prevents this, so use a different period, or start exec at times in UTC"
	}
	return fmt.Sprintf("if your timers fire at %s local time, CMD misses a run when clocks are set forward on %s, because the timers then fire twice in one period of --every %s. %s",
		now.Format("15:04"), s.At.Format(time.DateOnly), terminal.Brief(period), advice)
}

// beginOnce sets the pause between failed polls, and the pause before exec repeats work that failed on another machine.
func (x *execution) beginOnce() {
	x.once.retry.Max = x.lease / 3
	x.once.pause = loop.Pause{Clock: x.candidate.Clock}
	if !x.try {
		x.once.pause.Longest = loop.LongestPause(x.lease)
	}
}

// glance reads the last completed key before exec competes for the lock. If the work is already done, exec exits
// without any other RPC. If the read fails, glance returns nil, because step reads the key again.
func (x *execution) glance(ctx context.Context) error {
	terminal.Stderr.Time()
	ctx, cancel := context.WithTimeout(ctx, x.readTimeout())
	defer cancel()
	var over *exit.Error
	if err := x.choose(ctx); errors.As(err, &over) {
		return err
	}
	return nil
}

// choose reads the last completed key and chooses the key for CMD. If there is nothing to do, it returns an
// *exit.Error.
func (x *execution) choose(ctx context.Context) error {
	last, now, err := x.last(ctx, table.Present)
	if err != nil {
		return err
	}
	key := x.once.named
	if t := x.once.tick; t.Period != 0 {
		key = t.Key(now)
		if spring, loses := t.NextSpring(now.Local()); loses {
			x.complain("%s: %s", x.name, aboutSpring(spring, t.Period, now.Local()))
		} else if offset, near := t.BetterOffset(now); near {
			x.complain("%s: a period of --every %s is about to end or has just begun, so CMD runs twice if another machine's timer fires slightly earlier or later. To prevent this, tell exec when your timers fire: --offset %s", x.name, terminal.Brief(t.Period), terminal.Brief(offset))
		}
	}
	if offset, other := ofTomorrow(x.once.tick, now); other && !x.own.Changed("offset") {
		x.complain("%s: the key %s has tomorrow's date. To get the time at which your timers fire as the key, set --offset %s", x.name, key, terminal.Brief(offset))
	}
	x.key = key
	x.once.pause.Asked(last, now)
	if last.OtherPeriod(x.Done()) {
		x.say("%s: the last completed key, %s, was recorded with --every %s. Keys for times before it was recorded count as done, but keys for later times do not", x.name, terminal.Show(last.Key), terminal.Brief(last.Period))
	}
	return x.unless(last, now)
}

// Done implements Job. It returns the work to do, whose key must be known.
func (x *execution) Done() table.Due { return table.Due{Key: x.key, Period: x.once.tick.Period} }

// last reads the last completed key, and the time by Spanner's clock.
func (x *execution) last(ctx context.Context, bound table.Bound) (table.Done, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, elect.Attempt(x.lease))
	defer cancel()
	last, now, err := x.candidate.Table.Done(ctx, bound, x.name)
	switch {
	case errors.Is(err, table.ErrGarbled):
		err = &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s: %w", x.name, err)}
	case err != nil:
		err = fmt.Errorf("can't read the last completed key: %w", err)
	}
	return last, now, err
}

// unless returns an *exit.Error if CMD must not run, because the key or a larger key is already done, or because the
// key can't be compared with the last completed key.
func (x *execution) unless(last table.Done, now time.Time) error {
	err := last.Forbids(x.Done())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, table.ErrDone):
		x.say("%s: %s was already done, %s", x.name, x.key, model.WhenDone(last, now))
	case errors.Is(err, table.ErrPassed):
		x.say("%s: skipping %s because the larger key %s was done %s. It is not known whether %s ever ran", x.name, x.key, terminal.Show(last.Key), model.WhenDone(last, now), x.key)
	default:
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s: %w", x.name, err)}
	}
	return &exit.Error{Code: x.once.already}
}

// step takes one step of the competition for the lock. The competition begins once the key is known.
func (x *execution) step(ctx context.Context) elect.Step {
	if !x.once.wanted() {
		return x.candidate.Try(ctx, elect.All, 0)
	}
	if x.key == "" {
		if err := x.choose(ctx); err != nil {
			return elect.Step{Err: err, Pause: x.once.retry.Pause(x.candidate.Clock)}
		}
	}
	look := func() (table.Done, time.Time, error) { return x.last(ctx, table.Present) }
	return x.candidate.Try(ctx, x.once.pause.Choose(look, x.unless), 0)
}

// wanted reports whether there is such work.
func (o *once) wanted() bool { return o.named != "" || o.tick.Period != 0 }

// Due implements Job. It reads the last completed key again, because the last holder may have recorded a key
// just before this process acquired the lock. While this process holds the lock, no other process can record a key.
func (x *execution) Due(ctx context.Context) error {
	last, now, err := x.last(ctx, table.Strong)
	if err == nil {
		err = x.unless(last, now)
	}
	return err
}
