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
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/wait"
)

var execHelp = `Exec waits for a lock, and runs CMD while it holds the lock. It starts CMD
directly, not through a shell, in a separate process group. It sets these
variables in CMD's environment:
  SPINDLE_LOCK   the lock's name
  SPINDLE_SLOT   with --slots N, the slot's number, from 0 to N-1
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
many of them are still running. Exec then releases the lock and exits with CMD's
exit code. With --restart, it competes for the lock again instead.

At a terminal, CMD behaves as it would without exec. It gets the terminal when
it first reads from the terminal or changes the terminal's settings. Ctrl-Z
stops both CMD and exec, and fg and bg continue both. While exec is stopped, it
sends no heartbeats. If it does not continue in time, a watchdog kills CMD
shortly before the lease expires, and the lock is lost.

Without a terminal, exec keeps running while CMD is stopped. If CMD does not
continue within one lease duration, exec ends it, releases the lock, and exits
with code 76 or, with --restart, competes again.
` + demandsHelp + `
Execs and the mutexes of package lock wait in one queue. A higher --priority
goes first; among equal priorities, the first to arrive goes first. Mutexes have
priority 9. An exec with a lower priority waits for as long as waiters with a
higher priority keep arriving. Guards and electors do not queue, nor does exec
with --every, --cron, --once or --try. They get the lock if one of their polls
finds it free.

With --slots N, NAME has up to N holders at a time: execs, and semaphores of
package lock. Each holder has a slot, which is a separate lock. SPINDLE_LOCK is
the slot's name, such as NAME/slot/0000. All holders should use the same N.
While an exec with a smaller N holds a slot or waits for one, the others take
only slots with numbers below that N. --slots can't be combined with --every,
--cron, --once or --handover.

With --try, exec exits immediately if another process holds the lock. If several
machines start exec at the same time, only one of them runs CMD. However, a
machine that starts exec after CMD has finished elsewhere runs CMD again.
` + onceHelp + `
If no heartbeat is acknowledged for one lease duration, the lock is lost. CMD
must exit before that, because another process may then acquire the lock. Exec
therefore signals CMD's group in advance. It sends SIGTERM and, after --grace,
SIGKILL. SIGKILL is due one second before the lock would be lost, or a twentieth
of the lease if that is shorter. The default of --grace is a quarter of the
lease, which is also the maximum.

If an operator takes the lock away with spindle release, exec ends CMD in the
same way. In this case, however, the next holder does not wait until CMD has
exited.

Exec passes these signals on to CMD's group: SIGINT, SIGTERM, SIGHUP, SIGQUIT,
SIGUSR1, SIGUSR2 and SIGWINCH. After one of the first four, exec exits once CMD
has exited. If exec is still waiting for the lock, it exits without running CMD,
with code 128 plus the signal's number. If CMD is stopped when one of the four
arrives, exec continues CMD, so that CMD can handle the signal. With
--stop-timeout, exec kills CMD if CMD has not exited within that time. If SIGHUP
or SIGINT was ignored when exec started, for example under nohup, exec and CMD
continue to ignore it.

With --handover, exec delays passing on a signal that ends exec. It first
announces to the other candidates that it will give up the lock, and signals CMD
a third of the lease later. Another process can then take over as soon as CMD
has exited. If exec gets a second signal, it passes that signal on immediately.

With --handover, exec also gives up the lock when spindle handover or a
candidate with a higher priority requests it. Exec announces this in the same
way, and then sends SIGTERM to CMD. When CMD has exited, exec competes for the
lock again, even without --restart.

CMD does not outlive exec. If exec is killed, even with SIGKILL, a watchdog
process immediately kills CMD's group. On Linux, it also kills processes that
have left the group but still have SPINDLE_LOCK and SPINDLE_TOKEN in their
environment, except hooks. When all of these processes have exited, it releases
the lock, so that the next machine does not have to wait until the lease
expires. If exec is only stopped, the watchdog kills the group shortly before
the lease expires. If the watchdog is killed, exec starts a new one. If that
fails, exec ends CMD.

Some cases are not covered. When a suspended machine resumes, CMD can run for an
instant before it is killed. If exec and its watchdog are killed at the same
time, CMD or its children can keep running. If only exec is killed, a process
that has left CMD's group keeps running if it has changed its environment, if it
belongs to another user, or if the system is not Linux. To protect your data in
all these cases, send SPINDLE_TOKEN with each write, and have the receiver
refuse any token that is smaller than one it has already seen.

If exec is PID 1 of a container, it reaps orphaned processes, as an init process
does.
` + reportsHelp("exec", "if it holds the lock") + `
--on-lost runs when the lock is lost. It also runs when exec ends CMD because
the lock is about to be lost, or because CMD exceeded a limit or failed a check.
--on-stuck runs when CMD's group has been killed but has not exited by the time
the lock is lost. CMD may then run at the same time as the next holder's CMD.

Exit codes:
  CMD's own, or 128 plus the number of the signal that killed CMD, or
  1    spindle failed; the message says why, and whether CMD succeeded
  2    the command line is wrong
  75   another process holds the lock (--try), or held it until --wait was over
  76   the lock was lost, or CMD exceeded a limit or failed a check
  126  CMD can't be run
  127  CMD was not found`

// execution is the command exec, with its flags.
type execution struct {
	reports
	lease   time.Duration
	grace   time.Duration
	atOnce  bool
	restart bool
	slots   int           // of the semaphore, or 0 for a lock
	limit   time.Duration // how long the program may take to exit after a signal to end, or 0 for no limit
	once    once
	demands
	args []string
}

// NewExec returns the command exec.
func NewExec(o *database.Database) *cobra.Command {
	x := &execution{reports: reports{lockCommand: lockCommand{Database: o}}}
	c := &cobra.Command{
		Use:   "exec --name NAME [flags] [--] CMD [ARGS]...",
		Short: "Run a program while holding a lock",
		Long:  execHelp,

		DisableFlagsInUseLine: true, // they go before CMD
		Example: `  spindle exec --name nightly -- ./nightly-report --all
  spindle exec --name nightly --try -- ./nightly-report || [ $? = 75 ]
  spindle exec --name nightly --every 24h -- ./nightly-report    # from cron
  spindle exec --name import --slots 3 -- ./import               # on 3 machines
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
	x.reports.flags(f, "when CMD was killed but has not exited by the time the lock is lost")
	f.DurationVar(&x.lease, "lease", 10*time.Second, "how long the lock is kept without an acknowledged heartbeat")
	f.DurationVar(&x.grace, "grace", 0, "if the lock is lost, how long CMD may take to exit before it is killed; at most a quarter of the lease")
	f.Lookup("grace").DefValue = "a quarter of the lease"
	f.DurationVar(&x.limit, "stop-timeout", 0, "kill CMD if it is still running this long after a signal to exit (default: never)")
	f.BoolVar(&x.atOnce, "try", false, "give up immediately if another process holds the lock")
	f.DurationVar(&x.wait, "wait", 0, "give up if the lock is not acquired within this time (default: never)")
	f.BoolVar(&x.restart, "restart", false, "compete again whenever CMD exits or the lock is lost")
	f.IntVar(&x.slots, "slots", 0, "the `number` of holders that the lock may have at a time, from 1 to 1000 (default: one, without slots)")
	x.once.flags(f)
	x.demands.flags(f)
	return c
}

func (x *execution) run(ctx context.Context) error {
	if err := child.Supported(); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	if err := x.check(); err != nil {
		return err
	}
	if x.atOnce { // --try does not wait for a database that hangs
		x.Timeout = min(x.Timeout, elect.Attempt(x.lease))
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	terminal.OutliveReaders()
	defer terminal.Stderr.Detach()()
	child.ReapAsInit()
	db, err := x.open(table.Exec, x.lease)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := x.find(); err != nil {
		return err // a candidate that can't do the work must not keep the lock from the others
	}
	stop, err := x.listen()
	if err != nil {
		return fmt.Errorf("--stall: %w", err)
	}
	defer stop()
	if err := x.begin(); err != nil {
		return err
	}
	defer x.end(signals)
	began := time.Now()
	x.joins(x.slots, !x.once.wanted() && !x.atOnce)
	if x.once.wanted() {
		x.beginOnce()
	}
	if err := x.prepare(ctx, db); err != nil {
		return err
	}
	if most := MostGrace(x.lease); x.grace > most {
		x.complain("--grace %v is more than a quarter of the lease of %v, so %s gets only %v to exit if the lock is lost", x.grace, x.lease, x.args[0], most)
	}
	p := x.newPrograms(signals, openTerminal(), time.Since(began))
	x.does(false, "on standby: competing for %s", x.name)
	x.probe.Looping()
	x.unit.Ready()
	return p.run()
}

// find looks the program up.
func (x *execution) find() error {
	err := child.Find(x.args[0])
	if err != nil && x.Meant(x.args[0]) {
		return terminal.Misuse("%s is not a command: to listen at this address, write --notify=%[1]s", x.args[0])
	}
	return err
}

func (x *execution) check() error {
	if x.atOnce && x.wait != 0 {
		return terminal.Misuse("give either --try or --wait, not both")
	}
	for _, flag := range []string{"wait", "grace", "stop-timeout", "run-timeout"} {
		if d, _ := x.own.GetDuration(flag); d < 0 {
			return terminal.Misuse("--%s %v: must not be negative", flag, d)
		}
	}
	if err := x.checkOnce(); err != nil {
		return err
	}
	switch given, long := x.own.Changed("slots"), wait.CheckSemaphore(x.name); {
	case given && (x.slots < 1 || x.slots > wait.MostSlots):
		return terminal.Misuse("--slots %d: must be from 1 to %d", x.slots, wait.MostSlots)
	case given && long != nil:
		return terminal.Misuse("%v", long)
	case given && x.once.wanted():
		return terminal.Misuse("--slots is for programs that run side by side. With --every, --cron or --once, only one runs")
	case given && x.handover:
		return terminal.Misuse("give either --slots or --handover, not both, because a request for a handover would go to the holders of all slots")
	}
	if err := x.demands.check(x.lease); err != nil {
		return err
	}
	return x.reports.check()
}

// prepare checks for errors that waiting can't fix. A signal to end interrupts prepare, and the main loop also gets it.
func (x *execution) prepare(ctx context.Context, db *database.Connection) error {
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

// try polls the lock once. If it returns a *terminal.Exit, exec ends with it.
func (x *execution) try(ctx context.Context) (elect.Step, *terminal.Exit) {
	step := x.step(ctx)
	if step.Term != nil && x.sized() {
		step = x.settle(ctx, step)
	}
	var over *terminal.Exit
	switch {
	case errors.As(step.Err, &over):
		return step, over
	case x.within(x.usable(step.Seen)):
		return step, &terminal.Exit{Code: terminal.Failed, Err: fmt.Errorf("%s is already held by the spindle process that runs this command, so the command would wait for itself; choose a different name", x.name)}
	case errors.Is(step.Err, table.ErrGroup):
		return step, &terminal.Exit{Code: terminal.Failed, Err: fmt.Errorf("%s was not acquired: %w; choose a different name", x.name, step.Err)}
	case step.Term != nil, ctx.Err() != nil, // the poll was interrupted
		// Spanner may abort a claim on a free lock, and another slot may be free
		(x.atOnce || x.sized()) && step.Lost && step.Err == nil:
		return step, nil
	case x.atOnce && errors.Is(step.Err, table.ErrNewer):
		return step, &terminal.Exit{Code: NotInTime, Err: fmt.Errorf("%s was not acquired because it is held: %w", x.name, step.Err)}
	case x.atOnce && step.Err != nil:
		return step, &terminal.Exit{Code: terminal.Failed, Err: x.Explain(fmt.Errorf("%s was not acquired: %w", x.name, step.Err))}
	case x.atOnce:
		return step, &terminal.Exit{Code: NotInTime, Err: fmt.Errorf("%s was not acquired: %w", x.name, whyNot(step))}
	}
	told := step
	if err := x.attend(ctx, step); err != nil {
		told.Err = err
	}
	x.seen(told)
	return step, nil
}

func whyNot(step elect.Step) error {
	if o := step.Seen[0]; o.Confirmed() && o.Holder() != "" {
		return fmt.Errorf("%s %s, token %v", heldBy("it is ", step.Seen), terminal.Show(o.Holder()), o.Token)
	}
	return errors.New("another candidate was first")
}

// start starts the program with a watchdog. The function until returns the watchdog's deadline. It is called twice:
// before the watchdog is started, and again just before the program begins. Even if this process is stopped or killed,
// the watchdog kills the program by the deadline, which Allow can extend.
func (x *execution) start(t *elect.Term, until func() time.Time) (Program, error) {
	return child.Start(child.Command{Args: x.args, Env: append(x.environment(t.Token()), x.pinged...), Whole: true, Until: until,
		Watch: func(until time.Time) (*child.Watchdog, error) {
			return x.watchdog(duty{Token: t.Token(), Lease: x.lease}, until)
		}})
}
