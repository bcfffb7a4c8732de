package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

var guardHelp = `Guard keeps a service active on the machine that holds a lock, and inactive on
all other machines. The service can be a unit of an init system, or anything
else that commands can start and stop. Guard runs the commands with /bin/sh. It
sets SPINDLE_LOCK (the lock's name), SPINDLE_DB and SPINDLE_TABLE in their
environment, and for --activate also SPINDLE_TOKEN.

Three flags control the timing. Set them to the same values on all machines.
Guard sends a heartbeat every --renew. The lease is --failures times --renew. If
no heartbeat is acknowledged for one lease duration, the lock is lost, and
another machine can acquire it. That machine waits for the confirmation, which
is --confirm times --renew, before it activates the service. During this time,
the watchdog on the previous machine can deactivate the service. If the previous
holder released the lock, the next machine activates the service immediately.

When guard starts, it first deactivates the service, because the service may
still be active. If the --deactivate command fails, guard runs it again until it
succeeds. A command that runs for longer than nine tenths of the confirmation is
killed and counts as failed. If a deactivation has failed, guard does not
release the lock but lets it expire, so that the next machine waits for the
confirmation before it activates the service.

Guard runs --healthcheck with "active" or "standby" as an additional argument.
On standby, guard checks the service each time before it tries to acquire the
lock. It does not compete for the lock while the check fails. While the service
is active, guard checks it before each heartbeat. If the check fails --unhealthy
times in a row, guard deactivates the service and releases the lock, so that
another machine can acquire it immediately. Guard does not check the service
while it is being activated or deactivated.

A health check that takes too long is killed and counts as failed. On standby,
it may take one lease duration. While the service is active, it may take half of
the remaining lease.

After SIGTERM, SIGINT or SIGHUP, guard deactivates the service, releases the
lock and exits. A second SIGTERM or SIGINT kills guard immediately. Under nohup,
guard ignores SIGHUP.

While the service may be active, guard has a watchdog process. If guard is
killed, even with SIGKILL, the watchdog immediately deactivates the service, and
retries until that succeeds. If guard is stopped, the watchdog deactivates the
service when the lease expires. If the watchdog itself is killed, guard gives up
the lock.

Two cases are not covered: guard and its watchdog are killed at the same time,
or the machine is suspended. An init system that kills both processes must
deactivate the service itself, as the unit in deploy/systemd does.

Only one guard on a machine manages a service. A second guard with the same
lock, --deactivate command and working directory waits until the first guard and
its watchdog have exited. Therefore, two deactivations never run at the same
time, and a late deactivation never undoes the next activation. The guards find
each other through a lock file in a directory that only their user can write to.
Guard tries $RUNTIME_DIRECTORY first. Next, it tries /run/spindle if it runs as
root, or else $XDG_RUNTIME_DIR. Last, it tries a subdirectory of the temporary
directory.
` + reportsHelp("guard", "if the service is active here") + `
--on-stuck runs when a deactivation fails or takes too long. It does not run
again until a deactivation has succeeded. If guard is dead or stopped, its
watchdog runs the hook. The hook can, for example, reset the machine.

Exit codes:
  0    guard received a signal, and the service is inactive
  1    guard could not start; the message says why
  2    the command line is wrong
  130  a second signal (SIGINT) killed guard
  143  a second signal (SIGTERM) killed guard`

// guarding is one run of guard. It is the service of a Guard, and its reports implement part of that.
type guarding struct {
	lockCommand
	reports
	activate, deactivate, healthcheck string
	renew, activation                 time.Duration
	failures, confirm, unhealthy      int

	lockFile *child.LockFile       // or nil, if there is no safe directory for it
	dog      atomic.Pointer[armed] // while the service may be active; only the watchdog deactivates the service then
	duty     duty                  // in a watchdog
}

// armed is a watchdog, and the term that it knows. The watchdog deactivates the service when guard tells it to, when
// guard exits, or when guard misses its deadline. Therefore, two processes never deactivate the service at the same time,
// and a deactivation continues even if guard is killed.
type armed struct {
	*child.Watchdog
	term *elect.Term
}

// NewGuard returns the command guard.
func NewGuard(o *connect.Database) *cobra.Command {
	g := &guarding{lockCommand: lockCommand{Database: o}}
	c := &cobra.Command{
		Use:   "guard --name NAME --activate CMD --deactivate CMD",
		Short: "Keep a service active on one machine only",
		Long:  guardHelp,
		Example: `  spindle guard --name billing \
    --activate "systemctl start billing" \
    --deactivate "systemctl stop billing" \
    --healthcheck /usr/local/bin/billing-health`,
		Args: flags.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return g.run(c.Context()) },
	}
	f := c.Flags()
	g.lockCommand.flags(f)
	f.StringVar(&g.activate, "activate", "", "the `command` that makes the service active")
	f.StringVar(&g.deactivate, "deactivate", "", "the `command` that makes the service inactive; it must also succeed if the service is already inactive")
	f.StringVar(&g.healthcheck, "healthcheck", "", "a `command` that succeeds if the service is healthy; it gets an argument: active or, if the question is whether this machine could run the service, standby (default: always healthy)")
	f.DurationVar(&g.renew, "renew", 3*time.Second, "the time between two heartbeats")
	f.IntVar(&g.failures, "failures", 3, "the lease, as a multiple of --renew: how long until the lock is lost if no heartbeat is acknowledged")
	f.IntVar(&g.confirm, "confirm", 3, "the confirmation, as a multiple of --renew: how long to wait before activating the service if the last holder died")
	f.IntVar(&g.unhealthy, "unhealthy", 1, "how many health checks in a row must fail before an active machine gives up the lock")
	f.DurationVar(&g.activation, "activation", 90*time.Second, "how long an activation may take")
	g.reportFlags.flags(f, "when a deactivation fails or takes too long; it does not run again until a deactivation has succeeded")
	return c
}

func (g *guarding) confirmation() time.Duration { return time.Duration(g.confirm) * g.renew }

func (g *guarding) check() error {
	lease := g.renew * time.Duration(g.failures)
	switch {
	case g.activate == "" || g.deactivate == "":
		return exit.Misuse("--activate %q, --deactivate %q: both commands are required", g.activate, g.deactivate)
	case g.failures < 2 || g.failures > 1000:
		return exit.Misuse("--failures %d: must be at least 2, so that one heartbeat can be late, and at most 1000", g.failures)
	case g.confirm < 1 || g.confirm > 1000:
		return exit.Misuse("--confirm %d: must be at least 1, to leave time for a deactivation, and at most 1000", g.confirm)
	case g.unhealthy < 1 || g.unhealthy > 100:
		return exit.Misuse("--unhealthy %d: must be at least 1 and at most 100", g.unhealthy)
	case g.renew <= 0 || lease < 100*time.Millisecond || lease > table.MaxLease:
		return exit.Misuse("--renew %v times --failures %d is a lease of %v; the lease must be at least 100ms and at most %v", g.renew, g.failures, lease, table.MaxLease)
	case g.activation <= 0:
		return exit.Misuse("--activation %v: must be positive", g.activation)
	}
	return g.reports.check()
}

func (g *guarding) run(ctx context.Context) error {
	if err := child.Supported(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	if err := g.check(); err != nil {
		return err
	}
	exit.OutliveReaders()
	defer terminal.Stderr.Detach()()
	ctx, stop := exit.UntilEnded(ctx)
	defer stop()
	lease := g.renew * time.Duration(g.failures)
	db, candidate, err := g.open(table.Guard, lease)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := g.reports.begin(&g.lockCommand, &candidate); err != nil {
		return err
	}
	defer g.reports.end(nil) // last, so that the next guard does not wait for hooks
	context.AfterFunc(ctx, func() { g.Ending() })
	if err := g.verify(ctx, db.Client()); err != nil {
		return err
	}
	if err := g.alone(ctx); err != nil {
		return err
	}
	if g.lockFile != nil {
		defer g.lockFile.End()
	}
	g.probe.Looping()
	service := Guard{
		command: command{
			Candidate: &candidate, Handover: g.handover, Asks: g.reports.asks,
			Say:  func(format string, args ...any) { g.say("%s: "+format, append([]any{g.name}, args...)...) },
			Warn: func(format string, args ...any) { g.complain("%s: "+format, append([]any{g.name}, args...)...) },
		},
		Service: g, Renew: g.renew, Confirmation: g.confirmation(), Unhealthy: g.unhealthy, Activation: g.activation,
	}
	service.Run(ctx)
	return nil
}

// Activate implements Service.
func (g *guarding) Activate(ctx context.Context, t *elect.Term) error {
	d := duty{Command: "guard", Path: g.Path, Table: g.Table, Name: g.name, ID: g.id, Token: t.Token(), Renew: g.renew, Confirm: g.confirm,
		Deactivate: []byte(g.deactivate), OnStuck: []byte(g.hooks.Commands[onStuck]), HookLimit: g.limit}
	var files []*os.File
	if g.lockFile != nil {
		files = append(files, g.lockFile.File)
	}
	dog, err := child.StartWatchdog(until(t), g.watchdogEnvironment(), d.args(watchdogCommand), files...)
	if err != nil {
		return err
	}
	g.dog.Store(&armed{dog, t})
	g.Extended() // the term may just have been extended
	return g.shell(ctx, g.activate, t.Token(), child.Leaving, child.WatchedBy(dog))
}

// Extended implements Service.
func (g *guarding) Extended() {
	if dog := g.dog.Load(); dog != nil {
		dog.Allow(until(dog.term))
	}
}

// until returns the time at which the term is lost if no heartbeat extends it. If this process is stopped after it has
// read the time, the result is too early, which is safe.
func until(t *elect.Term) time.Time {
	now := time.Now()
	return now.Add(t.Left())
}

// Deactivate implements Service.
func (g *guarding) Deactivate(ctx context.Context) error {
	stop := whenLate(ctx, g.Stuck) // the command may still be running after it was killed
	err := g.turnOff(ctx)
	stop()
	if err == nil {
		g.reports.ranOut()
	} else if ctx.Err() == nil {
		g.Stuck(err)
	}
	return err
}

// turnOff lets the watchdog deactivate the service. If there is no watchdog, turnOff deactivates the service itself.
func (g *guarding) turnOff(ctx context.Context) error {
	if dog := g.dog.Load(); dog != nil {
		err := dog.Finish(ctx)
		if err == nil || errors.Is(err, child.ErrGone) {
			g.dog.Store(nil)
		}
		if !errors.Is(err, child.ErrGone) {
			return err
		}
	}
	return g.switchOff(ctx, g.Stuck)
}

// switchOff runs the --deactivate command. It calls late if the command takes too long.
func (g *guarding) switchOff(ctx context.Context, late func(error)) error {
	limit := g.confirmation() * 9 / 10 // the rest is for starting and killing the command
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := whenLate(limited, late)
	defer stop()
	err := g.shell(limited, g.deactivate, 0, child.Leaving)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("killed after %v: %w", limit, err)
	}
	return err
}

// whenLate calls f when the deadline of ctx passes, unless stop is called first. If f is already running, stop waits
// until f has returned.
func whenLate(ctx context.Context, f func(error)) (stop func()) {
	over := make(chan struct{})
	notYet := context.AfterFunc(ctx, func() {
		defer close(over)
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			f(fmt.Errorf("the deactivation is taking too long: %w", err))
		}
	})
	return sync.OnceFunc(func() {
		if !notYet() {
			<-over
		}
	})
}

// Changed implements Service.
func (g *guarding) Changed(s State) {
	if s == Competing {
		g.reports.ready()
	}
	g.reports.does(s == Working, "%s", s)
}

// Check implements Service.
func (g *guarding) Check(ctx context.Context, role Role) error {
	if dog := g.dog.Load(); dog != nil && role == Active {
		select {
		case <-dog.Begun():
			return errors.New("the watchdog is already deactivating the service, or has exited")
		default:
		}
	}
	if g.healthcheck == "" {
		return nil
	}
	err := g.shell(ctx, g.healthcheck+" "+string(role), 0)
	if err != nil && role == Standby && ctx.Err() == nil {
		g.reports.does(false, "on standby: not competing because the health check failed: %v", err)
	}
	return err
}

// shell runs a command of the service.
func (g *guarding) shell(ctx context.Context, command string, token table.Token, options ...child.Option) error {
	err := shell(ctx, command, g.environment(token), options...)
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}
