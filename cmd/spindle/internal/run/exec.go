package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

var execHelp = `Exec waits for a lock, and runs CMD while it holds the lock. It starts CMD
directly, not through a shell, in a separate process group. It sets these
variables in CMD's environment:
  SPINDLE_LOCK   the lock's name
  SPINDLE_TOKEN  the fencing token of this term; later terms have larger tokens
  SPINDLE_DB     the database
  SPINDLE_TABLE  the lock table
CMD can therefore run spindle status "$SPINDLE_LOCK" to see this lock. If CMD
runs another exec, that exec needs a lock of its own. Exec fails immediately if
it is given the lock that it runs under, because it would wait for itself.
Variables that set exec's own flags, such as SPINDLE_NAME and SPINDLE_VALUE, are
removed from CMD's environment.

When CMD exits, exec kills the rest of CMD's process group. On Linux, it also
kills processes that CMD started and that have left the group. It can't kill
processes of other users, such as those started with sudo, but it reports how
many are still running. Exec then releases the lock and exits with CMD's exit
code. With --restart, it competes for the lock again instead.

At a terminal, CMD behaves as it would without exec. It gets the terminal when
it first reads from the terminal or changes the terminal's settings. Ctrl-Z
stops both CMD and exec, and fg and bg continue both. While exec is stopped, it
sends no heartbeats. If it does not continue in time, the lock is lost when the
lease expires, and a watchdog kills CMD.

CMD can also be stopped without a terminal. If it does not continue within one
lease duration, exec ends it, releases the lock, and exits with code 76.

With --try, exec exits immediately if another process holds the lock. If several
machines start CMD at the same time, only one of them runs it. However, a
machine that starts it later, when CMD has finished elsewhere, runs it again.
` + onceHelp + `
If no heartbeat is acknowledged for one lease duration, the lock is lost. CMD
must exit before that, because another process may then acquire the lock. Exec
therefore sends signals to CMD's group in advance. It sends SIGKILL one second
before the lock would be lost, or a twentieth of the lease if that is shorter.
It sends SIGTERM before SIGKILL, earlier by --grace. By default, --grace is a
quarter of the lease, which is also the maximum.

If an operator takes the lock away with spindle release, exec ends CMD in the
same way. In this case, however, the next holder does not wait until CMD has
exited.

Exec passes signals on to CMD's group. After SIGINT, SIGTERM, SIGHUP or SIGQUIT,
exec exits as soon as CMD has exited, or immediately if exec is still waiting
for the lock. If CMD is stopped when such a signal arrives, exec continues it,
so that it can handle the signal. If --stop-timeout is set, exec kills CMD if it
has not exited within that time. If SIGHUP or SIGINT was ignored when exec
started, for example under nohup, exec and CMD continue to ignore it.

With --handover, exec delays a signal that ends exec. It first announces to the
other candidates that it will give up the lock, and signals CMD a third of the
lease later. Another process can then take over as soon as CMD has exited. If
exec gets a second signal, it passes that signal on immediately.

With --handover, exec also gives up the lock when spindle handover or a
candidate with a higher priority requests it. Exec announces this in the same
way, and sends SIGTERM to CMD. When CMD has exited, exec competes for the lock
again, even without --restart.

CMD does not outlive exec. If exec is killed, even with SIGKILL, a watchdog
process immediately kills CMD's group. On Linux, it also kills processes that
have left the group but still have SPINDLE_LOCK and SPINDLE_TOKEN in their
environment. When all of these processes have exited, the watchdog releases the
lock, so that the next machine does not have to wait until the lease expires. If
exec is only stopped, the watchdog kills the group shortly before the lease
expires. If the watchdog is killed, exec starts a new one. If that fails, exec
ends CMD.

Two cases are not covered. When a suspended machine resumes, CMD can run for an
instant before it is killed. And if exec is killed, a process keeps running if
it has left CMD's group and changed its environment. To protect your data in
both cases, send SPINDLE_TOKEN with each write, and have the receiver refuse any
token that is smaller than one it has already seen.

If exec is PID 1 of a container, it reaps orphaned processes, as an init process
does.
` + reportsHelp("exec", "if it holds the lock") + `
--on-lost runs when the lock is lost. It also runs when exec ends CMD because
the lock is about to be lost. --on-stuck runs when CMD's group has been killed
but has not exited by the time the lock is lost. CMD may then run at the same
time as the next holder's CMD.

Exit codes:
  CMD's own, or 128 plus the number of the signal that killed CMD, or
  1    spindle failed; the message says why, and whether CMD succeeded
  2    the command line is wrong
  75   another process holds the lock (--try), or held it until --wait was over
  76   the lock was lost, so exec ended CMD
  126  CMD can't be run
  127  CMD was not found`

// execution is one run of exec. It is the job of an Exec, and its reports implement part of that.
type execution struct {
	lockCommand
	reports
	lease   time.Duration
	grace   time.Duration
	try     bool
	restart bool
	stop    time.Duration // how long the program may take to end, or 0 for no limit
	once    once
	args    []string

	candidate elect.Candidate
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
				return errors.New("no command given after --")
			case len(args) == 0 || args[0] == "":
				return errors.New("no command given: put it after the flags, and after -- if it begins with a dash")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			x.args = args
			if !c.Flags().Changed("grace") {
				x.grace = max(MostGrace(x.lease), 0)
			}
			return x.run(c.Context())
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	x.lockCommand.flags(f)
	f.DurationVar(&x.lease, "lease", 10*time.Second, "how long the lock is kept without an acknowledged heartbeat")
	f.DurationVar(&x.grace, "grace", 0, "if the lock is lost, how long CMD may take to exit before it is killed; at most a quarter of the lease")
	f.Lookup("grace").DefValue = "a quarter of the lease"
	f.DurationVar(&x.stop, "stop-timeout", 0, "kill CMD if it is still running this long after a signal to exit (default: never)")
	f.BoolVar(&x.try, "try", false, "give up immediately if another process holds the lock")
	f.DurationVar(&x.wait, "wait", 0, "give up if the lock is not acquired within this time (default: never)")
	f.BoolVar(&x.restart, "restart", false, "compete again whenever CMD exits or the lock is lost")
	x.once.flags(f)
	x.reportFlags.flags(f, "when CMD was killed but has not exited by the time the lock is lost")
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
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	exit.OutliveReaders()
	defer terminal.Stderr.Detach()()
	child.ReapAsInit()
	db, candidate, err := x.open(table.Exec, x.lease)
	if err != nil {
		return err
	}
	defer db.Close()
	x.candidate = candidate
	if err := child.Find(x.args[0]); err != nil {
		return err // a candidate that can't do the work must not keep the lock from the others
	}
	if err := x.reports.begin(&x.lockCommand, &x.candidate); err != nil {
		return err
	}
	defer func() { x.reports.end(untilEnding(signals)) }()
	began := time.Now()
	if x.once.wanted() {
		x.beginOnce()
	}
	if err := x.prepare(ctx, db); err != nil {
		return err
	}
	if most := MostGrace(x.lease); x.grace > most {
		x.complain("--grace %v is more than a quarter of the lease (%v), so %s gets only %v to exit if the lock is lost", x.grace, x.lease, x.args[0], most)
	}
	e := x.exec(signals, time.Since(began))
	x.reports.compete()
	return e.Run()
}

// exec returns the Exec to run. Waited is the part of --wait that has already elapsed.
func (x *execution) exec(signals <-chan os.Signal, waited time.Duration) *Exec {
	return &Exec{
		command: command{Candidate: &x.candidate, Handover: x.handover, Say: x.say, Warn: x.complain, Asks: x.reports.asks},
		Job:     x, Program: x.args[0], Grace: x.grace, StopTimeout: x.stop, Once: x.once.wanted(), Restart: x.restart,
		Patience: Patience{Wait: x.wait, Waited: waited, Trouble: x.trouble}, Signals: signals, Terminal: openTerminal(),
	}
}

// untilEnding returns a channel that is closed when exec receives the next signal to end. It is for work that exec does
// after it has released the lock.
func untilEnding(signals <-chan os.Signal) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		for s := range signals {
			if ends(s) {
				close(over)
				return
			}
		}
	}()
	return over
}

func (x *execution) check() error {
	switch {
	case x.try && x.wait != 0:
		return exit.Misuse("give either --try or --wait, not both")
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

// prepare checks for errors that waiting can't fix. A signal to end interrupts prepare, but Run still receives it.
func (x *execution) prepare(ctx context.Context, db *connect.Connection) error {
	defer x.Audible()()
	ctx, stop := signal.NotifyContext(ctx, endings...)
	defer stop()
	if x.once.wanted() {
		if err := x.glance(ctx); err != nil {
			return err
		}
	}
	return x.verify(ctx, db.Client())
}

// Try implements Job.
func (x *execution) Try(ctx context.Context) (elect.Step, *exit.Error) {
	step := x.step(ctx)
	var over *exit.Error
	switch {
	case errors.As(step.Err, &over):
		return step, over
	case x.within(step):
		return step, &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s is already held by the spindle process that runs this command, so the command would wait for itself", x.name)}
	case errors.Is(step.Err, table.ErrGroup):
		return step, &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s was not acquired: %w; choose a different name", x.name, step.Err)}
	case step.Term != nil, ctx.Err() != nil: // the poll was interrupted
		return step, nil
	case x.try && errors.Is(step.Err, table.ErrNewer):
		return step, &exit.Error{Code: NotInTime, Err: fmt.Errorf("%s was not acquired because it is held: %w", x.name, step.Err)}
	case x.try && step.Err != nil:
		return step, &exit.Error{Code: exit.Failed, Err: x.Explain(fmt.Errorf("%s was not acquired: %w", x.name, step.Err))}
	case x.try:
		return step, &exit.Error{Code: NotInTime, Err: fmt.Errorf("%s was not acquired: %w", x.name, whyNot(step))}
	}
	x.Seen(step)
	return step, nil
}

func whyNot(step elect.Step) error {
	if o := step.Seen[0]; o.Exists && o.Holder() != "" {
		return fmt.Errorf("it is held by %s, token %v", terminal.Show(o.Holder()), o.Token)
	}
	return errors.New("another candidate was first")
}

// Begin implements Job.
func (x *execution) Begin(t *elect.Term) {
	x.token = t.Token()
	x.say("holding %s, token %v", x.name, t.Token())
	x.reports.Begin(t)
	x.reports.does(true, "holding %s, token %v; running %s", x.name, t.Token(), x.args[0])
}

// Jeopardy implements Job.
func (x *execution) Jeopardy(t *elect.Term, err error) {
	x.complain("jeopardy: %s is still held, but will be lost in %s unless a heartbeat is acknowledged: %v", x.name, terminal.Short(t.Left()), err)
}

// Safe implements Job.
func (x *execution) Safe() { x.relieve("safe: heartbeats for %s are acknowledged again", x.name) }

// Over implements Job.
func (x *execution) Over() {
	x.token = 0
	x.reports.Over()
	x.reports.ranOut()
	x.reports.does(false, "%s is no longer held", x.name)
}

// Start implements Job.
func (x *execution) Start(t *elect.Term, until func() time.Time) (Program, error) {
	d := duty{Command: "exec", Path: x.Path, Table: x.Table, Name: x.name, ID: x.id, Token: t.Token(), Lease: x.lease}
	return child.Start(x.args, x.environment(t.Token()), child.Whole, child.Watched(until, x.watchdogEnvironment(), d.args(watchdogCommand)...))
}
