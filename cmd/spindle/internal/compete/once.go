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
With --every or --once all machines may start CMD, from cron say, and one runs
it: --every 24h once a day; --once KEY once for that key. The others wait, and
end with 0, or the code of --already, once it is done. It is done if CMD ends
with exit code 0: the commit that releases the lock records that. If CMD fails,
is killed, or loses the lock, the next exec that waits or is started runs it.
CMD also gets SPINDLE_KEY, the key that it is run for. With --every and --offset
that is the time at which the timers fire. Without --offset it only names the
period: the key of a run late at night has the date of the next day.

Once a larger key is done (in the order of bytes: v9 is after v10), CMD is not
run any more for a smaller one. An exec with that key ends as if it was done,
whether CMD ever ran for it or not. So don't use --once for work that every key
needs.

The days or hours of --every are counted by Spanner's clock, whatever the clocks
of the machines say. They end when hardly any cron line fires: those of 24h at
12:07:30 UTC, those of 1h at 37:30. So all machines that cron starts at one time
ask in the same period. If your cron line fires close to an end, exec says so:
give the time at which it fires, in UTC, as --offset, such as 12h.
`

// once says what exec is to do once.
type once struct {
	named   string     // the key that was given
	tick    table.Tick // whose key it is, if the period is not zero
	already int        // the exit code if it was done already
	retry   elect.Backoff
	pause   repeat.Pause
}

func (o *once) flags(f *pflag.FlagSet) {
	f.DurationVar(&o.tick.Period, "every", 0, "run CMD once in each `period`, such as 24h, on one of the machines that ask")
	f.StringVar(&o.named, "once", "", "run CMD once for this `key`, on one of the machines that ask")
	f.DurationVar(&o.tick.Offset, "offset", 0, "when CMD is started, after 0:00 UTC (of Monday): a `time` in the middle of a period")
	f.Lookup("offset").DefValue = "0, or 7m30s"
	f.IntVar(&o.already, "already", 0, "exit with this `code`, such as 77, if the key, or a larger one, was done already")
	flags.OnlyOnCommandLine(f, "every", "once", "offset", "already") // --every has another meaning in other commands
}

// checkOnce looks for mistakes on the command line.
func (x *execution) checkOnce() error {
	o, given := &x.once, x.own.Changed
	switch {
	case given("every") && given("once"):
		return exit.Misuse("--every and --once: give one of them")
	case given("offset") && !given("every"):
		return exit.Misuse("--offset %v: is of the periods of --every, which is missing", o.tick.Offset)
	case given("already") && !given("every") && !given("once"):
		return exit.Misuse("--already %d: is for what --every or --once finds done, and there is neither", o.already)
	case !given("every") && !given("once"):
		return nil
	case x.restart:
		return exit.Misuse("--restart: is for a program that runs forever. With --every or --once, start exec again, for example from cron")
	case x.handover:
		return exit.Misuse("--handover: is for a program that runs forever. With --every or --once it would end CMD, and another machine would begin it anew")
	case o.already < 0 || o.already == exit.Failed || o.already == exit.Misused || o.already == notInTime || o.already == lost || o.already > 125:
		return exit.Misuse("--already %d: want 0, or a code from 3 to 125 that is not exec's own (%d, %d), such as 77", o.already, notInTime, lost)
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

// ofTomorrow reports whether a daily run before midnight counts for the next day, and returns the offset with which it would not.
func ofTomorrow(t table.Tick, now time.Time) (time.Duration, bool) {
	now = now.UTC()
	offset := now.Sub(now.Truncate(24 * time.Hour)).Round(time.Minute)
	return offset, t.Period == 24*time.Hour && t.Begin(now).Day() != now.Day() && t.Begin(now).After(now)
}

// beginOnce sets the pauses between looks that fail, and before exec runs what has failed elsewhere.
func (x *execution) beginOnce() {
	x.once.retry.Max = x.lease / 3
	x.once.pause = repeat.Pause{Clock: x.candidate.Clock}
	if !x.try {
		x.once.pause.Longest = repeat.Longest(x.lease)
	}
}

// glance takes a first look at what was done last. If there is nothing to do, that costs one RPC and nothing else. It
// retries a look that fails.
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

// choose reads what was done last, and so finds the key to do. If there is none, its error is an exit.
func (x *execution) choose(ctx context.Context) error {
	last, now, err := x.last(ctx, table.Present)
	if err != nil {
		return err
	}
	key := x.once.named
	if t := x.once.tick; t.Period != 0 {
		key = t.Key(now)
		if offset, near := t.BetterOffset(now); near {
			x.complain("%s: a period of --every %s ends at about this time: if a timer of another machine fires a little earlier or later, CMD runs twice. Give the time at which they fire: --offset %s", x.name, terminal.Brief(t.Period), terminal.Brief(offset))
		}
	}
	if offset, other := ofTomorrow(x.once.tick, now); other && !x.own.Changed("offset") {
		x.complain("%s: the key %s has tomorrow's date. For keys with the time at which timers fire, give that time: --offset %s", x.name, key, terminal.Brief(offset))
	}
	x.key = key
	x.once.pause.Asked(last, now)
	if last.OtherPeriod(x.due()) {
		x.say("%s: what was done last, %s, was of --every %s: it counts for times until it was recorded, and not for later ones", x.name, terminal.Show(last.Key), terminal.Brief(last.Period))
	}
	return x.unless(last, now)
}

// due returns what is to be done, once its key is known.
func (x *execution) due() table.Due { return table.Due{Key: x.key, Period: x.once.tick.Period} }

// last reads what was done last, and the time by Spanner's clock.
func (x *execution) last(ctx context.Context, bound table.Bound) (table.Done, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, elect.Attempt(x.lease))
	defer cancel()
	last, now, err := x.candidate.Table.Done(ctx, bound, x.name)
	switch {
	case errors.Is(err, table.ErrGarbled):
		err = &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s: %w", x.name, err)}
	case err != nil:
		err = fmt.Errorf("what was done last: %w", err)
	}
	return last, now, err
}

// unless returns an exit if the key is done, was passed by a larger one, or can't be compared with what was done.
func (x *execution) unless(last table.Done, now time.Time) error {
	err := last.Forbids(x.due())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, table.ErrDone):
		x.say("%s: %s was done already, %s", x.name, x.key, describe.WhenDone(last, now))
	case errors.Is(err, table.ErrPassed):
		x.say("%s: %s is not run any more: %s, which is larger, was done %s. Whether %s ran is not known", x.name, x.key, terminal.Show(last.Key), describe.WhenDone(last, now), x.key)
	default:
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s: %w", x.name, err)}
	}
	return &exit.Error{Code: x.once.already}
}

// step takes one step of the competition, which begins once the key is known.
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

// Due implements execcmd.Job. It reads what was done last under the lock, where nobody else can record it any more: the last
// holder could until its lease row was gone.
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
