package compete

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/guard"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

var guardHelp = `Guard keeps a service active on the machine that holds a lock, and inactive on
all others. The service belongs to an init system, or is anything else that
commands can start and stop. /bin/sh runs the commands. Their environment has
SPINDLE_LOCK (the lock's name), SPINDLE_DB and SPINDLE_TABLE; that of --activate
has SPINDLE_TOKEN too. Give all machines the same --renew, --failures and
--confirm.

These three flags set the timing. A heartbeat renews the lock every --renew (R).
The lease is --failures (F) times R: if no heartbeat gets through for that long,
the lock is lost. The confirmation is --confirm (C) times R: after the lease of
a dead machine, the next one waits this long before it activates, so that the
dead one's watchdog can deactivate. If the lock was released, the next machine
activates at once.

Guard first deactivates the service, so that its state is known. A deactivation
must finish within the confirmation: after nine tenths of it the command is
killed, and tried again until it succeeds. If it has failed, the lock is not
released but left to expire, so that the next machine waits.

Guard runs --healthcheck with "active" or "standby" as one more argument. On
standby it runs before each look at the lock: if it fails, this machine does not
compete. While active it runs before each heartbeat: if it has failed
--unhealthy times in a row, guard deactivates the service and releases the lock,
and another machine can have it at once. A check that takes too long is killed,
and counts as failed: while active it may take half of what is left of the
lease, on standby a whole lease. It does not run while the service is being
activated or deactivated.

SIGTERM, SIGINT and SIGHUP end guard, once the service is inactive and the lock
released. A second SIGTERM or SIGINT ends it at once. Under nohup guard ignores
SIGHUP.

While the service may be active, guard has a watchdog process. If guard is
killed, even with SIGKILL, the watchdog deactivates the service at once, and
tries until it succeeds. If guard is stopped, the watchdog does so at the end of
the lease. If the watchdog itself is killed, guard gives the lock up. Two things
are not covered: both are killed at once, or the machine is suspended. An init
system that kills both must deactivate the service: deploy/systemd has a unit
that does.

Only one guard on a machine takes care of a service: a second one with the same
lock, the same --deactivate and the same directory waits until the first, and
its watchdog, have ended. So --deactivate never runs twice at once, and never
after the next activation. They find each other by a lock file in a folder that
only their user can write to: $RUNTIME_DIRECTORY; root's /run/spindle, or
$XDG_RUNTIME_DIR; or else one in the folder for temporary files.
` + reportsHelp("guard", "if the service is active here") + `
--on-stuck runs when a deactivation fails or takes too long, and then not again
until one has succeeded. If guard is dead or stopped, its watchdog runs it. It
can reset the machine, say.

Exit codes:
  0    a signal ended it, and the service is inactive
  1    it could not start; the message says why
  2    the command line is wrong
  130  a second signal, SIGINT, ended it at once
  143  a second signal, SIGTERM, ended it at once`

// guarding is one run of guard.
type guarding struct {
	lockCommand
	activate, deactivate, healthcheck string
	renew, activation                 time.Duration
	failures, confirm, unhealthy      int

	reports   reports
	stuckHook []string        // in a watchdog: the token, the time limit and the command of --on-stuck
	lockFile  *child.LockFile // or nil

	mu   sync.Mutex // guards the rest
	term *elect.Term
	dog  *child.Watchdog // while the service may be active
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
	f.StringVar(&g.deactivate, "deactivate", "", "the `command` that makes the service inactive; it must succeed if it already is")
	f.StringVar(&g.healthcheck, "healthcheck", "", "the `command` that succeeds if the service is healthy, or on standby would be (default: always healthy)")
	f.DurationVar(&g.renew, "renew", 3*time.Second, "the time between two heartbeats")
	f.IntVar(&g.failures, "failures", 3, "the lease, as a multiple of --renew: the lock is lost after so long without a heartbeat")
	f.IntVar(&g.confirm, "confirm", 3, "the confirmation, as a multiple of --renew: how long to wait before the activation, after a takeover from a dead holder")
	f.IntVar(&g.unhealthy, "unhealthy", 1, "how many health checks in a row must fail before an active machine gives the lock up")
	f.DurationVar(&g.activation, "activation", 90*time.Second, "how long an activation may take")
	g.reports.flags(f, "when a deactivation fails or takes too long, once until one succeeds")
	return c
}

func (g *guarding) check() error {
	lease := g.renew * time.Duration(g.failures)
	switch {
	case g.activate == "" || g.deactivate == "":
		return exit.Misuse("--activate %q, --deactivate %q: both are needed, the commands that start and stop the service", g.activate, g.deactivate)
	case g.failures < 2 || g.failures > 1000:
		return exit.Misuse("--failures %d: at least 2 are needed, so that one heartbeat may be late; at most 1000", g.failures)
	case g.confirm < 1 || g.confirm > 1000:
		return exit.Misuse("--confirm %d: at least 1 is needed, which is the time for a deactivation; at most 1000", g.confirm)
	case g.unhealthy < 1 || g.unhealthy > 100:
		return exit.Misuse("--unhealthy %d: must be from 1 to 100: so many checks in a row fail before an active machine gives up", g.unhealthy)
	case g.renew <= 0 || lease < 100*time.Millisecond || lease > table.MaxLease:
		return exit.Misuse("--renew %v times --failures %d is a lease of %v: it must be at least 100ms and at most %v", g.renew, g.failures, lease, table.MaxLease)
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
	db, err := g.Open(spindle.ClientOptions(lease)...)
	if err != nil {
		return err
	}
	defer db.Close()
	candidate, err := g.newCandidate(db, lease)
	if err != nil {
		return err
	}
	candidate.LeaseRecord.Kind = table.Guard
	if err := g.reports.begin(&g.lockCommand, &candidate); err != nil {
		return err
	}
	defer g.reports.end(nil) // last: the next guard need not wait for hooks
	context.AfterFunc(ctx, func() { g.reports.ending(nil) })
	if err := g.verify(ctx, db.Client()); err != nil {
		return err
	}
	if err := g.alone(ctx); err != nil {
		return err
	}
	if g.lockFile != nil {
		defer g.lockFile.End()
	}
	found := narrator{lockCommand: &g.lockCommand}
	g.reports.looping()
	service := guard.Guard{
		Candidate: candidate, Service: g, Renew: g.renew, Confirm: g.confirm, Unhealthy: g.unhealthy, Activation: g.activation, Handover: g.handover,
		Say:      func(format string, args ...any) { g.say("%s: "+format, append([]any{g.name}, args...)...) },
		Warn:     func(format string, args ...any) { g.complain("%s: "+format, append([]any{g.name}, args...)...) },
		Seen:     func(step elect.Step) { g.reports.waits(step); found.report(step) },
		Observer: g, Asks: g.reports.asks,
	}
	service.Run(ctx)
	return nil
}

// Activate implements guard.Service.
func (g *guarding) Activate(ctx context.Context, t *elect.Term) error {
	dog, err := g.arm(t)
	if err != nil {
		return err
	}
	return g.shell(ctx, g.activate, t.Token(), child.Leaving, child.WatchedBy(dog))
}

// Deactivate implements guard.Service.
func (g *guarding) Deactivate(ctx context.Context) error {
	stop := whenLate(ctx, g.reports.runsOn) // the command may not end, even though it was killed
	err := g.turnOff(ctx)
	stop()
	if err == nil {
		g.reports.ranOut()
	} else if ctx.Err() == nil {
		g.reports.runsOn(err)
	}
	return err
}

// turnOff lets the watchdog deactivate, or does so itself if there is none.
func (g *guarding) turnOff(ctx context.Context) error {
	if dog := g.watchdog(); dog != nil {
		err := dog.Finish(ctx)
		if err == nil || errors.Is(err, child.ErrGone) {
			g.disarm()
		}
		if !errors.Is(err, child.ErrGone) {
			return err
		}
	}
	return g.switchOff(ctx, g.reports.runsOn)
}

// switchOff runs the command that deactivates. It calls late if the command takes too long.
func (g *guarding) switchOff(ctx context.Context, late func(error)) error {
	limit := guard.Deactivation(g.renew, g.confirm)
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

// whenLate calls f if the deadline of ctx passes before stop is called. f does not run any more once stop has returned.
func whenLate(ctx context.Context, f func(error)) (stop func()) {
	over := make(chan struct{})
	notYet := context.AfterFunc(ctx, func() {
		defer close(over)
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			f(fmt.Errorf("the deactivation takes too long: %w", err))
		}
	})
	return sync.OnceFunc(func() {
		if !notYet() {
			<-over
		}
	})
}

// Elected implements guard.Observer.
func (g *guarding) Elected(t *elect.Term) { g.reports.acquired(t) }

// Lost implements guard.Observer.
func (g *guarding) Lost(why error) { g.reports.lost(why) }

// Over implements guard.Observer.
func (g *guarding) Over() { g.reports.over() }

// Changed implements guard.Observer.
func (g *guarding) Changed(s guard.State) {
	if s == guard.Competing {
		g.reports.ready()
	}
	g.reports.does(s == guard.Working, "%s", s)
}

// Check implements guard.Service.
func (g *guarding) Check(ctx context.Context, role guard.Role) error {
	if dog := g.watchdog(); dog != nil && role == guard.Active {
		select {
		case <-dog.Begun():
			return errors.New("the watchdog has deactivated the service, or is gone")
		default:
		}
	}
	if g.healthcheck == "" {
		return nil
	}
	err := g.shell(ctx, g.healthcheck+" "+string(role), 0)
	if err != nil && role == guard.Standby && ctx.Err() == nil {
		g.reports.does(false, "on standby: not competing, as the health check failed: %v", err)
	}
	return err
}

// shell runs a command in its own process group, which is killed as a whole when ctx ends.
func (g *guarding) shell(ctx context.Context, command string, token table.Token, options ...child.Option) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c, err := child.Start([]string{"/bin/sh", "-c", command}, g.environment(token), append(options, child.Apart)...)
	if err != nil {
		return err
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		c.Kill()
		<-c.Done()
		return fmt.Errorf("%s: %w", command, ctx.Err())
	}
	if c.Code() != 0 {
		return fmt.Errorf("%s: exit code %d", command, c.Code())
	}
	return nil
}
