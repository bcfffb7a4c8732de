package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
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
another machine can acquire it. Before that machine activates the service, it
waits for the confirmation period, which is --confirm times --renew. During this
time, the watchdog on the previous machine can deactivate the service. If the
previous holder released the lock, the next machine activates the service
immediately.

When guard starts, it first deactivates the service, because the service may
still be active. If the --deactivate command fails, guard runs it again until it
succeeds. If the command runs for longer than nine tenths of the confirmation
period, it is killed and counts as failed. If a deactivation has failed, guard
does not release the lock but lets it expire, so that the next machine waits for
the confirmation period before it activates the service.

Guard runs --healthcheck with "active" or "standby" as an additional argument.
On standby, guard checks the service before it tries to acquire the lock, unless
the last check succeeded and began less than half of --renew ago. While the
check fails, guard does not compete for the lock. While the service is active,
guard checks it before each heartbeat. If the check fails --unhealthy times in a
row, guard deactivates the service and releases the lock, so that another
machine can acquire it immediately. Guard does not check the service while it is
being activated or deactivated.

A health check that takes too long is killed and counts as failed. On standby,
it may take one lease duration. While the service is active, it may take half of
the remaining lease.

After SIGTERM, SIGINT or SIGHUP, guard deactivates the service, releases the
lock and exits. A second SIGTERM or SIGINT kills guard immediately. Under nohup,
guard ignores SIGHUP.

While the service may be active, guard has a watchdog process. If guard is
killed, even with SIGKILL, the watchdog immediately deactivates the service, and
retries until that succeeds. If guard is stopped with SIGSTOP, the watchdog
deactivates the service when the lease expires. If the watchdog itself is
killed, guard deactivates the service and gives up the lock.

Two cases are not covered: guard and its watchdog are killed at the same time,
or the machine is suspended. An init system that kills both processes must
deactivate the service itself, as the unit in deploy/systemd does.

On each machine, at most one of a user's guards manages a given service. A
second guard with the same lock, --deactivate command and working directory
waits until the first guard has exited and its watchdog has deactivated the
service. Therefore, two deactivations do not run at the same time, and a late
deactivation does not undo the next activation. If a guard gets a signal while
it waits, it exits with 0.

The guards find each other through a lock file in a directory that only their
user can write to. Guard tries $RUNTIME_DIRECTORY first. Next, it tries
/run/spindle-guard if it runs as root, or else $XDG_RUNTIME_DIR. Last, it tries
a subdirectory of the temporary directory. Guards with different directories do
not find each other. If no directory is suitable, guard prints a warning and
does not wait.
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

// guarding is the command guard, with its flags.
type guarding struct {
	reports
	checks
	activate, deactivate string
	renew, activation    time.Duration
	failures, confirm    int

	lockFile *child.LockFile       // or nil, if there is no safe directory for it
	dog      atomic.Pointer[armed] // while the service may be active, or is being deactivated
}

// armed is a watchdog, and the term that sets its deadline. The term is nil if the watchdog was started only to
// deactivate the service. Guard leaves each deactivation to the watchdog, which deactivates the service when guard
// orders it to, exits, or misses the deadline. Therefore, guard and its watchdog do not deactivate the service at the
// same time, and a deactivation continues even if guard is killed.
type armed struct {
	*child.Watchdog
	term *elect.Term
}

// NewGuard returns the command guard.
func NewGuard(o *database.Database) *cobra.Command {
	g := &guarding{reports: reports{lockCommand: lockCommand{Database: o}}}
	c := &cobra.Command{
		Use:   "guard --name NAME --activate CMD --deactivate CMD",
		Short: "Keep a service active on one machine only",
		Long:  guardHelp,
		Example: `  spindle guard --name billing \
    --activate "systemctl start billing" \
    --deactivate "systemctl stop billing" \
    --healthcheck /usr/local/bin/billing-health`,
		Args: terminal.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return g.run(c.Context()) },
	}
	f := c.Flags()
	g.reports.flags(f, "when a deactivation fails or takes too long; it does not run again until a deactivation has succeeded")
	f.StringVar(&g.activate, "activate", "", "the `command` that makes the service active")
	f.StringVar(&g.deactivate, "deactivate", "", "the `command` that makes the service inactive; it must also succeed if the service is already inactive")
	g.checks.flags(f, "a `command` that succeeds if the service is healthy; its argument is active, or standby to ask whether this machine could run the service (default: always healthy)",
		"how many health checks in a row must fail before an active machine gives up the lock")
	f.DurationVar(&g.renew, "renew", 3*time.Second, "the time between two heartbeats")
	f.IntVar(&g.failures, "failures", 3, "the lease, as a multiple of --renew: the lock is lost if no heartbeat is acknowledged for that long")
	f.IntVar(&g.confirm, "confirm", 3, "the confirmation period, as a multiple of --renew: how long to wait before activating the service if the last holder died")
	f.DurationVar(&g.activation, "activation", 90*time.Second, "how long an activation may take")
	return c
}

// confirmation returns how long guard holds the lock before it activates the service, if the last holder did not
// release the lock. That holder's machine may still be deactivating the service.
func (g *guarding) confirmation() time.Duration { return time.Duration(g.confirm) * g.renew }

func (g *guarding) check() error {
	lease := g.renew * time.Duration(g.failures)
	switch {
	case g.activate == "" || g.deactivate == "":
		return terminal.Misuse("--activate %q, --deactivate %q: both commands are required", g.activate, g.deactivate)
	case g.failures < 2 || g.failures > 1000:
		return terminal.Misuse("--failures %d: must be at least 2, so that one heartbeat can be late, and at most 1000", g.failures)
	case g.confirm < 1 || g.confirm > 1000:
		return terminal.Misuse("--confirm %d: must be at least 1, to leave time for a deactivation, and at most 1000", g.confirm)
	case g.renew <= 0 || lease < 100*time.Millisecond || lease > table.MaxLease:
		return terminal.Misuse("--renew %v times --failures %d is a lease of %v; the lease must be at least 100ms and at most %v", g.renew, g.failures, lease, table.MaxLease)
	case g.activation <= 0:
		return terminal.Misuse("--activation %v: must be positive", g.activation)
	}
	if err := g.checks.check(); err != nil {
		return err
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
	terminal.OutliveReaders()
	defer terminal.Stderr.Detach()()
	ctx, stop := terminal.UntilEnded(ctx)
	defer stop()
	lease := g.renew * time.Duration(g.failures)
	db, err := g.open(table.Guard, lease)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := g.begin(); err != nil {
		return err
	}
	defer g.end(nil) // last, so that the next guard does not wait for hooks
	context.AfterFunc(ctx, g.unit.Stopping)
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
	if g.healthcheck != "" {
		g.config.Poll = g.renew // a standby's polls, each with a health check, do not depend on the holder's lease
	}
	g.newServices(g).run(ctx)
	return nil
}

// arm starts a watchdog, which deactivates the service at the deadline.
func (g *guarding) arm(t *elect.Term, deadline time.Time) (*armed, error) {
	d := duty{Renew: g.renew, Confirm: g.confirm, Deactivate: []byte(g.deactivate), OnStuck: []byte(g.hooks.Commands[onStuck]), HookLimit: g.hooks.Limit}
	g.with(func(s *state) { d.Token = s.last })
	var files []*os.File
	if g.lockFile != nil {
		files = append(files, g.lockFile.File)
	}
	dog, err := g.watchdog(d, deadline, files...)
	if err != nil {
		return nil, err
	}
	a := &armed{dog, t}
	g.dog.Store(a)
	return a, nil
}

// Activate implements service. The watchdog deactivates the service at the term's deadline.
func (g *guarding) Activate(ctx context.Context, t *elect.Term) error {
	dog, err := g.arm(t, g.until(t))
	if err != nil {
		return err
	}
	g.Extended() // the term may just have been extended
	return g.shell(ctx, g.activate, t.Token(), child.Command{Leaving: true, Dog: dog.Watchdog})
}

// Extended implements service.
func (g *guarding) Extended() {
	if dog := g.dog.Load(); dog != nil && dog.term != nil {
		dog.Allow(g.until(dog.term))
	}
}

// until returns the time at which the watchdog must deactivate the service if no heartbeat extends the term. This is
// slightly later than the end of the term, so that a guard that is well can do it first. It is still before the lease
// ends (see elect.Limit). If this process is stopped after it has read the clock, the result is too early, which is
// safe.
func (g *guarding) until(t *elect.Term) time.Time {
	now, left := time.Now(), t.Left()
	if left <= 0 {
		return now
	}
	return now.Add(left + g.lease()/200)
}

// Deactivate implements service.
func (g *guarding) Deactivate(ctx context.Context) error {
	err := g.turnOff(ctx)
	switch {
	case err == nil:
		g.ranOut()
	case ctx.Err() == nil:
		g.stuck(err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		g.stuck(fmt.Errorf("the deactivation is taking too long: %w", ctx.Err()))
	}
	return err
}

// turnOff lets the watchdog deactivate the service. If no watchdog is left, turnOff starts one.
func (g *guarding) turnOff(ctx context.Context) (err error) {
	for range 2 {
		dog := g.dog.Load()
		if dog == nil {
			if dog, err = g.arm(nil, time.Now().Add(g.confirmation())); err != nil {
				return err
			}
		}
		err = dog.Finish(ctx)
		if err == nil || errors.Is(err, child.ErrGone) {
			g.dog.Store(nil)
		}
		if !errors.Is(err, child.ErrGone) {
			return err
		}
	}
	return err
}

// errUnwatched ends a term after one health check, because nothing would deactivate the service if guard died.
var errUnwatched = errors.New("the watchdog is already deactivating the service, or has exited")

// Check implements service.
func (g *guarding) Check(ctx context.Context, role role) error {
	if dog := g.dog.Load(); dog != nil && role == active {
		select {
		case <-dog.Begun():
			return errUnwatched
		default:
		}
	}
	if g.healthcheck == "" {
		return nil
	}
	return g.shell(ctx, g.healthcheck+" "+string(role), 0, child.Command{})
}
