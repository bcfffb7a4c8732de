package run

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/health"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/loop"
)

// checks are the health checks of what runs under the lock, with their flags.
type checks struct {
	healthcheck string
	unhealthy   int

	role atomic.Value // the role to check before heartbeats, or "" for no check
}

func (c *checks) flags(f *pflag.FlagSet, command, unhealthy string) {
	f.StringVar(&c.healthcheck, "healthcheck", "", command)
	f.IntVar(&c.unhealthy, "unhealthy", 1, unhealthy)
}

func (c *checks) check() error {
	if c.unhealthy < 1 || c.unhealthy > 100 {
		return terminal.Misuse("--unhealthy %d: must be at least 1 and at most 100", c.unhealthy)
	}
	return nil
}

// A role says whether a machine is active or on standby. Health checks get it as an argument.
type role string

const (
	active  role = "active"
	standby role = "standby"
)

// before registers a health check that runs before each heartbeat of a term, as long as there is a role to check.
func (c *checks) before(r *runner, h *holding, check func(context.Context, role) error) {
	clock := r.of.candidate.Clock
	last, of, failed := clock.Now(), role(""), 0 // when the last check ended, its role, and how many checks in a row have failed in that role
	h.Before = func(ctx context.Context, again bool) {
		valid := h.Interval / 2
		if again { // a new check would take the time in which the heartbeat can still be acknowledged
			valid = h.Interval
		}
		as, _ := c.role.Load().(role)
		if as == "" || clock.Now().Since(last) < valid {
			return
		}
		err := within(ctx, as, max(h.Left()/2, 0), check)                // the other half is for the heartbeat
		if last = clock.Now(); ctx.Err() != nil || c.role.Load() != as { // a check may fail because of a stop
			return
		}
		if err == nil || as != of {
			of, failed = as, 0
		}
		switch {
		case err == nil:
		case failed+1 >= c.unhealthy, errors.Is(err, errUnwatched):
			h.put(event{what: unfit, err: fmt.Errorf("the health check failed: %w", err)})
		default:
			failed++
			r.warn("the health check failed (failure %d of %d in a row): %v", failed, c.unhealthy, err)
		}
	}
}

// within runs a health check with a time limit.
func within(ctx context.Context, r role, limit time.Duration, check func(context.Context, role) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := check(limited, r)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("killed after %v, the most that the lease allows: %w", limit.Round(time.Millisecond), err)
	}
	return err
}

const demandsHelp = `
Exec also ends CMD in the cases below. It sends SIGTERM and, after --grace,
SIGKILL. Once CMD has exited, exec releases the lock, and exits with code 76 or,
with --restart, competes again. Once CMD has been signaled to exit,
--healthcheck and --stall no longer apply.
  --run-timeout  CMD runs for longer than this.
  --healthcheck  The command fails --unhealthy times in a row. Exec runs it with
                 /bin/sh before each heartbeat. The command gets the variables
                 above and the argument "active". If it takes longer than half
                 of the remaining lease, it is killed and counts as failed.
  --stall        CMD has shown no progress for this long. CMD shows progress as
                 it would to systemd: it sends WATCHDOG=1 to $NOTIFY_SOCKET, for
                 example with sd_notify(3) or systemd-notify. Exec also sets
                 WATCHDOG_USEC.
`

// demands are what the program must do to keep the lock.
type demands struct {
	checks
	runTimeout time.Duration // 0: it may run forever
	stall      time.Duration // 0: it need not make progress

	watched atomic.Pointer[loop.Stall] // watches the running program
	pinged  []string                   // the variables that tell the program where to show progress
}

func (d *demands) flags(f *pflag.FlagSet) {
	f.DurationVar(&d.runTimeout, "run-timeout", 0, "end CMD if it runs for longer than this (default: never)")
	f.DurationVar(&d.stall, "stall", 0, "end CMD if it makes no progress for this long; CMD, as the same user, shows progress as it would to systemd's watchdog (default: never)")
	d.checks.flags(f, "a `command` that succeeds if CMD is healthy; it gets the argument active (default: always healthy)",
		"how many health checks in a row must fail before CMD is ended")
}

func (d *demands) check(lease time.Duration) error {
	if d.stall != 0 && d.stall < lease/3 {
		return terminal.Misuse("--stall %v: must be at least the time between two heartbeats, %v, which is a third of --lease", d.stall, (lease / 3).Round(time.Millisecond))
	}
	return d.checks.check()
}

// listen begins to receive the programs' reports of progress.
func (d *demands) listen() (stop func(), err error) {
	stop = func() {}
	if d.stall > 0 {
		d.pinged, stop, err = health.Pings(d.stall, func() { d.watched.Load().Progress() })
	}
	return stop, err
}

// watch begins to watch the progress of a term's program.
func (d *demands) watch(p *programs, h *holding) (stop func()) {
	s := &loop.Stall{Clock: p.candidate.Clock, Limit: d.stall, Slow: func(idle, left time.Duration) {
		p.warn("%s has made no progress for %v; exec will end it unless it makes progress within %v", p.args[0], idle, left)
	}, End: func(reason error) { h.put(event{what: unfit, err: reason}) }}
	d.watched.Store(s)
	return s.Watch()
}
