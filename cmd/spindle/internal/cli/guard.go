package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/guard"
	"github.com/spindle-lock/spindle/internal/table"
)

const guardHelp = `Guard keeps a service active on the machine that holds a lock, and inactive on all
others: one that an init system runs, or anything else that commands can switch.
Commands are run by /bin/sh, with SPINDLE_NAME and SPINDLE_TABLE in their
environment, and SPINDLE_TOKEN in that of --activate. All machines have to be
given the same times.

The lock is renewed every --renew, R, and is lost after --failures, F, of them
were missed: R times F is the lease.

The first thing that guard does is to deactivate, so that the state is known. It
activates once it holds the lock: at once, where that was free or released, and
else after --confirm, C, more intervals, in which the former machine deactivates.
C times R is also what a deactivation may take, less a twentieth; it is killed
then, and tried again until it succeeds. A deactivation that fails is never
followed by a release: the lock is left to expire, so the next machine waits.

--healthcheck is run with "active" or "standby" as an argument more. On standby
it is run before each look at the lock: where it fails, this machine does not
stand. While active it is run before each heartbeat: where it fails, guard
deactivates and releases the lock, and others have it at once. It is killed, and
has failed, where it takes longer than the lease allows: half of what is left of
it, and the whole of it on standby. It is not run while the service changes.

SIGTERM and SIGINT end guard, once the service is inactive and the lock released.
A second one ends it at once. What SIGKILL, or a crash of the machine's kernel,
leave active is for the init system to end: examples/systemd has a unit whose
ExecStopPost does.

Exit codes:
  0    it was told to end, and the service is inactive
  1    it could not begin; the message says why
  2    the command line is wrong
  130, 143  it was told to end twice, by SIGINT or SIGTERM`

// guarding is one run of guard.
type guarding struct {
	standing
	activate, deactivate, healthcheck string
	renew, activation                 time.Duration
	failures, confirm                 int
}

func newGuard(o *common) *cobra.Command {
	g := &guarding{standing: standing{common: o}}
	c := &cobra.Command{
		Use:   "guard --name NAME --activate CMD --deactivate CMD",
		Short: "Keep a service active on one machine only",
		Long:  guardHelp,
		Example: `  spindle guard --name billing \
    --activate "systemctl start billing" \
    --deactivate "systemctl stop billing" \
    --healthcheck /usr/local/bin/billing-health`,
		Args: exactly(0, "none"),
		RunE: func(c *cobra.Command, _ []string) error { return g.run(c.Context()) },
	}
	f := c.Flags()
	g.standing.flags(f)
	f.StringVar(&g.activate, "activate", "", "the `command` that makes the service active")
	f.StringVar(&g.deactivate, "deactivate", "", "the `command` that makes it inactive; it has to succeed where it is already")
	f.StringVar(&g.healthcheck, "healthcheck", "", "the `command` that succeeds where the service is well, or could be (default: it always is)")
	f.DurationVar(&g.renew, "renew", 3*time.Second, "how often the lock is renewed")
	f.IntVar(&g.failures, "failures", 3, "after how many missed renewals the lock is lost")
	f.IntVar(&g.confirm, "confirm", 3, "for how many more intervals it is renewed, after a takeover from a dead holder, before the activation")
	f.DurationVar(&g.activation, "activation", 90*time.Second, "how long an activation may take")
	return c
}

func (g *guarding) check() error {
	lease := g.renew * time.Duration(g.failures)
	switch {
	case g.activate == "" || g.deactivate == "":
		return misuse("--activate and --deactivate: both are needed")
	case g.failures < 2 || g.failures > 1000:
		return misuse("--failures %d: at least 2 are needed, so that one heartbeat may be late; at most 1000", g.failures)
	case g.confirm < 1 || g.confirm > 1000:
		return misuse("--confirm %d: at least 1 is needed, which is the time for a deactivation; at most 1000", g.confirm)
	case g.renew <= 0 || lease < 100*time.Millisecond || lease > table.MaxLease:
		return misuse("--renew %v times --failures %d is a lease of %v: it must be at least 100ms and at most %v", g.renew, g.failures, lease, table.MaxLease)
	case g.activation <= 0:
		return misuse("--activation %v: it has to be more than nothing", g.activation)
	}
	return nil
}

func (g *guarding) run(ctx context.Context) error {
	if err := child.Supported(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	if err := g.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal ends it at once
	lease := g.renew * time.Duration(g.failures)
	db, err := g.open(spindle.ClientOptions(lease)...)
	if err != nil {
		return err
	}
	defer db.Close()
	candidate, err := g.candidate(db, lease)
	if err != nil {
		return err
	}
	if err := g.verify(ctx, db.client()); err != nil {
		return err
	}
	greet := greeter{standing: &g.standing}
	guard := &guard.Guard{
		Candidate: candidate, Service: g, Renew: g.renew, Confirm: g.confirm, Activation: g.activation,
		Say:  func(format string, args ...any) { g.say("%s: "+format, append([]any{g.name}, args...)...) },
		Warn: func(format string, args ...any) { complain("%s: "+format, append([]any{g.name}, args...)...) },
		Seen: greet.see,
	}
	guard.Run(ctx)
	return nil
}

// Activate implements guard.Service.
func (g *guarding) Activate(ctx context.Context, token table.Token) error {
	return g.shell(ctx, g.activate, []string{"SPINDLE_TOKEN=" + spindle.Token(token).String()}, child.Leaving)
}

// Deactivate implements guard.Service.
func (g *guarding) Deactivate(ctx context.Context) error {
	return g.shell(ctx, g.deactivate, nil, child.Leaving)
}

// Check implements guard.Service.
func (g *guarding) Check(ctx context.Context, role guard.Role) error {
	if g.healthcheck == "" {
		return nil
	}
	return g.shell(ctx, g.healthcheck+" "+string(role), nil)
}

// shell runs a command in a process group of its own, all of which is killed when ctx ends.
func (g *guarding) shell(ctx context.Context, command string, env []string, options ...child.Option) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	env = append(env, "SPINDLE_NAME="+g.name, "SPINDLE_TABLE="+g.table)
	c, err := child.Start([]string{"/bin/sh", "-c", command}, env, append(options, child.Apart)...)
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
