package compete

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/describe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/execcmd"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/repeat"
	"github.com/spindle-lock/spindle/internal/table"
)

const onceHelp = `
With --every or --once, you can start CMD on all machines, for example from
cron, and one of them runs it: once a day with --every 24h, or once for a key
with --once KEY. The other machines wait until the work is done, and then exit
with 0 or with the code that --already sets. The work is done when CMD exits
with 0; the commit that releases the lock records this. If CMD fails, is killed,
or loses the lock, the next exec that is waiting or is started runs CMD. CMD
also gets the key in SPINDLE_KEY. With --every and --offset, the key is the time
at which the timers fire. Without --offset, the key only identifies the period,
so a run late at night has a key with the next day's date.

When a key is done, CMD is never run for a smaller one. Keys are compared byte
by byte, so v9 is larger than v10. An exec with a smaller key exits as if that
key were done, whether or not CMD ever ran for it. So don't use --once for work
that must be done for every key.

The periods of --every follow Spanner's clock, regardless of the machines'
clocks. They end at times when few cron jobs start: at 12:07:30 UTC with 24h,
and at 37 minutes and 30 seconds past the hour with 1h. Machines whose cron jobs
start at the same time therefore use the same period. If exec starts close to
the end of a period, it warns you. In that case, set --offset to the time at
which your cron job starts, in UTC, such as 12h. That time then lies in the
middle of a period.
`

// once is the work that exec does once for each key.
type once struct {
	named   string     // the key of --once
	tick    table.Tick // determines the key, unless the period is zero
	already int        // the exit code if the key was already done
	retry   elect.Backoff
	pause   repeat.Pause
}

func (o *once) flags(f *pflag.FlagSet) {
	f.DurationVar(&o.tick.Period, "every", 0, "run CMD once in each `period`, such as 24h, on one of the machines that start it")
	f.StringVar(&o.named, "once", "", "run CMD once for this `key`, on one of the machines that start it")
	f.DurationVar(&o.tick.Offset, "offset", 0, "the `time` at which timers start CMD, counted from 0:00 UTC (for weekly periods, from 0:00 UTC on Monday)")
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
		return exit.Misuse("--handover is for programs that run forever. With --every or --once, a handover would end CMD, and another machine would start it from the beginning")
	case o.already < 0 || o.already == exit.Failed || o.already == exit.Misused || o.already == notInTime || o.already == lost || o.already > 125:
		return exit.Misuse("--already %d: must be 0, or a code from 3 to 125 that exec does not use itself (%d, %d), such as 77", o.already, notInTime, lost)
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

// ofTomorrow reports whether a daily run at the given time, before midnight, gets the next day's key. It also returns
// the offset with which the run would get a key of the same day.
func ofTomorrow(t table.Tick, now time.Time) (time.Duration, bool) {
	now = now.UTC()
	offset := now.Sub(now.Truncate(24 * time.Hour)).Round(time.Minute)
	return offset, t.Period == 24*time.Hour && t.Begin(now).Day() != now.Day() && t.Begin(now).After(now)
}

// beginOnce sets the pause between failed looks, and the pause before exec repeats work that failed on another machine.
func (x *execution) beginOnce() {
	x.once.retry.Max = x.lease / 3
	x.once.pause = repeat.Pause{Clock: x.candidate.Clock}
	if !x.try {
		x.once.pause.Longest = repeat.Longest(x.lease)
	}
}

// glance reads the last completed key before exec competes for the lock. If there is nothing to do, this read is exec's
// only RPC. If the read fails, glance returns nil, because step repeats the read.
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

// choose reads the last completed key, and from it determines the key to do. If there is nothing to do, the error is an
// *exit.Error.
func (x *execution) choose(ctx context.Context) error {
	last, now, err := x.last(ctx, table.Present)
	if err != nil {
		return err
	}
	key := x.once.named
	if t := x.once.tick; t.Period != 0 {
		key = t.Key(now)
		if offset, near := t.BetterOffset(now); near {
			x.complain("%s: a period of --every %s ends at about this time, so CMD runs twice if another machine's timer fires slightly earlier or later. To prevent this, set the time at which the timers fire: --offset %s", x.name, terminal.Brief(t.Period), terminal.Brief(offset))
		}
	}
	if offset, other := ofTomorrow(x.once.tick, now); other && !x.own.Changed("offset") {
		x.complain("%s: the key %s has tomorrow's date. To get keys with the time at which the timers fire, set that time: --offset %s", x.name, key, terminal.Brief(offset))
	}
	x.key = key
	x.once.pause.Asked(last, now)
	if last.OtherPeriod(x.due()) {
		x.say("%s: the last completed key, %s, was recorded with --every %s; it counts as done for times before it was recorded, but not for later ones", x.name, terminal.Show(last.Key), terminal.Brief(last.Period))
	}
	return x.unless(last, now)
}

// due returns the work to do. Its key must be known.
func (x *execution) due() table.Due { return table.Due{Key: x.key, Period: x.once.tick.Period} }

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

// unless returns an *exit.Error if the key is done, a larger key is done, or the key can't be compared with the last
// one.
func (x *execution) unless(last table.Done, now time.Time) error {
	err := last.Forbids(x.due())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, table.ErrDone):
		x.say("%s: %s was already done, %s", x.name, x.key, describe.WhenDone(last, now))
	case errors.Is(err, table.ErrPassed):
		x.say("%s: %s will not be run, because the larger key %s was done %s. It is not known whether %s ever ran", x.name, x.key, terminal.Show(last.Key), describe.WhenDone(last, now), x.key)
	default:
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s: %w", x.name, err)}
	}
	return &exit.Error{Code: x.once.already}
}

// step takes one step of the competition for the lock. The competition begins once the key is known.
func (x *execution) step(ctx context.Context) elect.Step {
	if !x.doesOnce() {
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

func (x *execution) doesOnce() bool { return x.once.named != "" || x.once.tick.Period != 0 }

// Due implements execcmd.Job. It reads the last completed key while this process holds the lock, when no other process
// can record one: the last holder could do so until its lease row was deleted.
func (x *execution) Due(ctx context.Context) (*execcmd.End, error) {
	last, now, err := x.last(ctx, table.Strong)
	if err == nil {
		err = x.unless(last, now)
	}
	var over *exit.Error
	if errors.As(err, &over) {
		return &execcmd.End{Code: over.Code, Err: over.Err}, nil
	}
	return nil, err
}
