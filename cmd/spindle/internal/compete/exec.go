package compete

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/execcmd"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

var execHelp = `Exec waits for a lock, and runs CMD while it holds the lock. CMD is run
directly, not by a shell, in a process group of its own. Its environment has
  SPINDLE_LOCK   the lock's name
  SPINDLE_TOKEN  the fencing token of this term: a number that only grows
  SPINDLE_DB     the database
  SPINDLE_TABLE  the lock table
so that spindle status "$SPINDLE_LOCK" in CMD asks about this lock. Variables
that set flags of exec itself, such as SPINDLE_NAME and SPINDLE_VALUE, are
removed: another exec in CMD must name its own lock. If it names the lock that
CMD runs under, it fails at once, since it would wait for itself.

When CMD ends, exec kills what is left of its process group and, on Linux, every
process that CMD started and that left the group. It can't kill processes of
another user, as by sudo: it says how many run on. Then exec releases the lock,
and ends with CMD's exit code. With --restart it competes for the lock again.

At a terminal, CMD works as without exec. It gets the terminal when it first
reads from it or changes it. Ctrl-Z stops CMD and exec, fg and bg continue both.
While exec is stopped it sends no heartbeats: after a lease the lock is lost,
and the watchdog kills CMD. If CMD is stopped without a terminal, and does not
continue within a lease, exec ends it, releases the lock, and ends with 76.

With --try, only one of the machines that start CMD at the same time runs it. A
machine that starts it after it has ended elsewhere runs it again.
` + onceHelp + `
If no heartbeat is acknowledged for a lease, the lock is lost. CMD must be gone
before another may hold it. So its group gets SIGTERM in time, and SIGKILL a
twentieth of the lease, at most a second, before the deadline. --grace is the
time between the two signals: a quarter of the lease, or less if you say so. The
same happens if the lock is taken away with spindle release, but then the next
holder does not wait for CMD to end.

Exec passes signals on to CMD's group. After SIGINT, SIGTERM, SIGHUP or SIGQUIT
it ends when CMD has ended, or at once if it is waiting for the lock. Exec
continues a stopped CMD, so that it gets such a signal. With --stop-timeout exec
kills a CMD that has not ended in that time. SIGHUP and SIGINT stay ignored, for
exec and for CMD, if they were ignored when exec began, as under nohup.

With --handover exec first announces that it will give the lock up. CMD gets the
signal a third of the lease later, so that another takes over as soon as CMD has
ended. A second signal is passed on at once. The same happens if spindle
handover or a candidate of higher priority asks: CMD gets SIGTERM, and once it
has ended exec competes for the lock again, even without --restart.

CMD does not outlive exec. If exec is killed, even with SIGKILL, a watchdog
process kills CMD's group at once and, on Linux, what left the group but kept
SPINDLE_LOCK and SPINDLE_TOKEN in its environment. When nothing is left, the
watchdog releases the lock, so that the next machine need not wait for the
lease. If exec is stopped, the watchdog kills the group at the deadline. If the
watchdog is killed, exec starts another one, or ends CMD if it can't. Two cases
are not covered: a suspended machine, on which CMD may act for an instant after
it resumes, and a process that left CMD's group and changed its environment
before exec was killed. Against both, send SPINDLE_TOKEN with each write, and
have the receiver refuse any token smaller than one it has seen.

As PID 1 of a container, exec waits for orphans, as an init does.
` + reportsHelp("exec", "if it holds the lock") + `
--on-lost also runs when CMD must end because the lock is nearly lost.
--on-stuck runs when CMD's group was killed and is not gone at the lock's
deadline: it may run beside the next holder's CMD.

Exit codes:
  CMD's own, or 128 plus the number of the signal that ended it, and
  1    spindle failed: the message says why, and whether CMD succeeded
  2    the command line is wrong
  75   another holds the lock (--try), or held it for as long as --wait says
  76   the lock was lost, and CMD was ended
  126  CMD can't be run
  127  CMD was not found`

// The exit codes of exec alone, beside the program's own.
const (
	notInTime = execcmd.NotInTime
	lost      = execcmd.Lost
)

// execution is one run of exec. It is the job of an execcmd.Exec.
type execution struct {
	lockCommand
	lease   time.Duration
	grace   time.Duration
	try     bool
	restart bool
	stop    time.Duration // how long the program may take to end, or 0
	once    once
	args    []string
	reports reports

	candidate elect.Candidate
	found     narrator
}

// NewExec returns the command exec.
func NewExec(o *connect.Database) *cobra.Command {
	x := &execution{lockCommand: lockCommand{Database: o}}
	c := &cobra.Command{
		Use:   "exec --name NAME [flags] [--] CMD [ARGS]...",
		Short: "Run a program while holding a lock",
		Long:  execHelp,

		DisableFlagsInUseLine: true, // they go before CMD
		Example: `  spindle exec --name nightly -- ./nightly-report --all
  spindle exec --name nightly --try -- ./nightly-report || [ $? = 75 ]
  spindle exec --name nightly --every 24h -- ./nightly-report    # from cron
  spindle exec --name migrate --once 0042 -- ./migrate
  spindle exec --name poller --restart --value "$(hostname -f):8080" ./poller`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && c.ArgsLenAtDash() == 0:
				return errors.New("there is no command after the --")
			case len(args) == 0 || args[0] == "":
				return errors.New("which command is to be run? Give it after the flags, and after -- if it begins with a dash")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			x.args = args
			if !c.Flags().Changed("grace") {
				x.grace = max(execcmd.MostGrace(x.lease), 0)
			}
			return x.run(c.Context())
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	x.lockCommand.flags(f)
	f.DurationVar(&x.lease, "lease", 10*time.Second, "how long a silent holder keeps the lock")
	f.DurationVar(&x.grace, "grace", 0, "how long CMD may take to end when the lock is lost: a quarter of the lease at most")
	f.Lookup("grace").DefValue = "a quarter"
	f.DurationVar(&x.stop, "stop-timeout", 0, "kill CMD if it has not ended so long after a signal to end (default: never)")
	f.BoolVar(&x.try, "try", false, "give up at once if another holds the lock")
	f.DurationVar(&x.wait, "wait", 0, "give up if the lock is not acquired in this time (default: never)")
	f.BoolVar(&x.restart, "restart", false, "compete again whenever CMD has ended or the lock was lost")
	x.once.flags(f)
	x.reports.flags(f, "when CMD was killed and is not gone at the lock's deadline")
	return c
}

func (x *execution) run(ctx context.Context) error {
	if err := child.Supported(); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	if err := x.check(); err != nil {
		return err
	}
	if x.try { // --try does not wait for a database that hangs
		x.Timeout = min(x.Timeout, elect.Attempt(x.lease))
	}
	signals := execcmd.Signals()
	exit.OutliveReaders()
	defer terminal.Stderr.Detach()()
	child.ReapAsInit()
	db, err := x.Open(spindle.ClientOptions(x.lease)...)
	if err != nil {
		return err
	}
	defer db.Close()
	if x.candidate, err = x.newCandidate(db, x.lease); err != nil {
		return err
	}
	x.candidate.LeaseRecord.Kind = table.Exec
	if err := child.Find(x.args[0]); err != nil {
		return codeOf(err) // a candidate that can't do the work must not keep others from it
	}
	if err := x.reports.begin(&x.lockCommand, &x.candidate); err != nil {
		return err
	}
	defer func() { x.reports.end(execcmd.UntilEnding(signals)) }()
	began := time.Now()
	if x.doesOnce() {
		x.beginOnce()
	}
	if err := x.prepare(ctx, db); err != nil {
		return err
	}
	if most := execcmd.MostGrace(x.lease); x.grace > most {
		x.complain("--grace %v is more than a quarter of the lease of %v: if the lock is lost, %s has %v to end", x.grace, x.lease, x.args[0], most)
	}
	e := x.exec(signals, time.Since(began))
	x.reports.compete()
	if end := e.Run(ctx); end != (execcmd.End{}) {
		return &exit.Error{Code: end.Code, Err: end.Err}
	}
	return nil
}

// exec returns the Exec to run, after some of the wait is over.
func (x *execution) exec(signals <-chan os.Signal, waited time.Duration) *execcmd.Exec {
	x.found.lockCommand = &x.lockCommand
	e := &execcmd.Exec{
		Candidate: &x.candidate, Job: x, Program: x.args[0], Grace: x.grace,
		Patience: execcmd.Patience{Wait: x.wait, Waited: waited, Trouble: x.trouble},
		Once:     x.doesOnce(), Handover: x.handover, Restart: x.restart,
		Signals: signals, StopTimeout: x.stop, Say: x.say, Warn: x.complain,
		Asks: x.reports.asks, Notices: execcmd.Notices{Ending: x.reports.ending, Lost: x.reports.lost, Stuck: x.reports.runsOn},
	}
	if t := child.OpenTerminal(); t != nil {
		e.Terminal = controlling{t}
	}
	return e
}

func (x *execution) check() error {
	switch {
	case x.try && x.wait != 0:
		return exit.Misuse("--try and --wait: give one of them")
	case x.wait < 0:
		return exit.Misuse("--wait %v: must not be negative", x.wait)
	case x.grace < 0:
		return exit.Misuse("--grace %v: must not be negative", x.grace)
	case x.stop < 0:
		return exit.Misuse("--stop-timeout %v: must not be negative", x.stop)
	}
	if err := x.checkOnce(); err != nil {
		return err
	}
	return x.reports.check()
}

// prepare looks for errors that waiting can't fix. A signal to end interrupts it, and is left for Run.
func (x *execution) prepare(ctx context.Context, db *connect.Connection) error {
	defer x.Audible()()
	ctx, stop := signal.NotifyContext(ctx, execcmd.Endings()...)
	defer stop()
	if x.doesOnce() {
		if err := x.glance(ctx); err != nil {
			return err
		}
	}
	return x.verify(ctx, db.Client())
}

// controlling is exec's controlling terminal. It writes exec's messages before exec is stopped.
type controlling struct{ *child.Terminal }

// Suspend implements execcmd.Terminal.
func (t controlling) Suspend() bool {
	terminal.Stderr.Flush()
	return t.Terminal.Suspend()
}

func codeOf(err error) error {
	var s *child.StartError
	if errors.As(err, &s) {
		return &exit.Error{Code: s.Code, Err: err}
	}
	return err
}

// Try implements execcmd.Job.
func (x *execution) Try(ctx context.Context) (elect.Step, *execcmd.End) {
	step := x.step(ctx)
	var over *exit.Error
	switch {
	case errors.As(step.Err, &over):
		return step, &execcmd.End{Code: over.Code, Err: over.Err}
	case x.within(step):
		return step, &execcmd.End{Code: exit.Failed, Err: fmt.Errorf("%s is held by the spindle that runs this command, which would wait for itself: it has the lock already", x.name)}
	case errors.Is(step.Err, table.ErrGroup):
		return step, &execcmd.End{Code: exit.Failed, Err: fmt.Errorf("%s was not acquired: %w: take another name", x.name, step.Err)}
	case step.Term != nil, ctx.Err() != nil: // the look was interrupted
		return step, nil
	case x.try && errors.Is(step.Err, table.ErrNewer):
		return step, &execcmd.End{Code: notInTime, Err: fmt.Errorf("%s was not acquired: it is held: %w", x.name, step.Err)}
	case x.try && step.Err != nil:
		return step, &execcmd.End{Code: exit.Failed, Err: x.Explain(fmt.Errorf("%s was not acquired: %w", x.name, step.Err))}
	case x.try:
		return step, &execcmd.End{Code: notInTime, Err: fmt.Errorf("%s was not acquired: %w", x.name, whyNot(step))}
	}
	x.reports.waits(step)
	x.found.report(step)
	return step, nil
}

func whyNot(step elect.Step) error {
	if o := step.Seen[0]; o.Exists && o.Holder() != "" {
		return fmt.Errorf("it is held by %s, token %v", terminal.Show(o.Holder()), o.Token)
	}
	return errors.New("another was first")
}

// Begin implements execcmd.Job.
func (x *execution) Begin(t *elect.Term) {
	x.token = t.Token()
	x.say("holding %s, token %v", x.name, t.Token())
	x.reports.acquired(t)
	x.reports.does(true, "holding %s, token %v: %s runs", x.name, t.Token(), x.args[0])
}

// Jeopardy implements execcmd.Job.
func (x *execution) Jeopardy(t *elect.Term, err error) {
	x.complain("jeopardy: %s is still held, but only for %s unless a heartbeat gets through: %v", x.name, terminal.Short(t.Left()), err)
}

// Safe implements execcmd.Job.
func (x *execution) Safe() { x.relieve("safe: heartbeats for %s get through again", x.name) }

// Over implements execcmd.Job.
func (x *execution) Over() {
	x.token = 0
	x.reports.over()
	x.reports.ranOut()
	x.reports.does(false, "%s is not held any more", x.name)
}

// Start implements execcmd.Job.
func (x *execution) Start(t *elect.Term, until time.Time) (execcmd.Program, error) {
	return child.Start(x.args, x.environment(t.Token()), child.Whole, child.Watched(until, x.watchdogEnvironment(),
		watchdogCommand, "exec", x.Path, x.Table, x.name, x.id, x.lease.String(), t.Token().String()))
}

// Done implements execcmd.Job.
func (x *execution) Done() table.Due { return x.due() }
