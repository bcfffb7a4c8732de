package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/health"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// reportsHelp returns the help for the flags of reports.
func reportsHelp(command, ready string) string {
	return fmt.Sprintf(`
--on-acquire, --on-lost and --on-stuck each set a hook. A hook is a command that
/bin/sh runs when an event occurs. Its environment contains the variables
above, including SPINDLE_TOKEN if the lock has been held, and SPINDLE_HOOK, the
name of the hook. For --on-lost and --on-stuck, it also contains SPINDLE_REASON.
A hook's output goes to standard error.

Hooks run in the background. If a hook is still running after --hook-timeout, it
is killed with its process group. If a hook fails or is killed, %[1]s logs this
and continues. At most one hook of each kind runs at a time. If an event occurs
while its hook is still running, %[1]s does not run the hook again for it. When
%[1]s exits, it first gives up the lock and then waits for hooks that are still
running.

--health-listen serves these paths over HTTP, without authentication:
  /livez    200 during startup, and later if the main loop answers within a
            second; otherwise 503
  /readyz   200 %[2]s, otherwise 503 and the reason
  /metrics  metrics for Prometheus

With --notify, processes that compete for a lock tell each other over UDP when
the lock is free. The lock then usually changes hands within milliseconds, and
waiting costs fewer requests. Without an address, %[1]s listens on all local
addresses, on any free port. Open the port to the processes that use the same
locks, and to no others. Locks also work without notifications. If the port is
taken, %[1]s chooses another one or, if --notify-address has a port, goes on
without notifications. Processes that can't reach this machine poll as usual.

In a systemd unit with Type=notify, systemctl status shows what %[1]s is doing.
With WatchdogSec= and Restart=always, systemd restarts %[1]s if its main loop
hangs.
`, command, ready)
}

// reports is the part that exec and guard share. It waits for a lock, and passes events on to hooks, probes and
// systemd.
type reports struct {
	lockCommand
	waits
	database.Notifications
	address string // of the probe, or ""
	told    narrated
	asks    chan struct{} // the main loop receives from it
	hooks   hooks
	probe   *health.Probe
	unit    *health.Unit
	ends    []func() // close the sockets

	mu    sync.Mutex // guards the rest
	state state
}

// state is what reports say about the process.
type state struct {
	term   *elect.Term
	last   table.Token // the token of the current or last term
	active bool        // the program is running, or the service is active, as far as is known
	stuck  bool
	doing  string
}

func (r *reports) lease() time.Duration { return r.candidate.LeaseRecord.Lease }

// open opens the database, and makes the candidate.
func (r *reports) open(kind table.LockKind, lease time.Duration) (*database.Connection, error) {
	db, err := r.Open(spindle.ClientOptions(lease)...)
	if err != nil {
		return nil, err
	}
	notified, silence, err := r.Notifications.Listen(r.Database)
	if err == nil {
		r.ends = append(r.ends, silence)
		r.config, err = r.configOn(db, lease, notified)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	locks, _ := r.config.Table(nil, r.Table)
	r.candidate = r.config.Candidate(locks, r.name)
	r.candidate.LeaseRecord.Kind = kind
	return db, nil
}

func (r *reports) flags(f *pflag.FlagSet, whenStuck string) {
	r.lockCommand.flags(f)
	for kind, when := range []string{onAcquire: "when the lock is acquired", onLost: "when the lock is lost rather than released", onStuck: whenStuck} {
		f.StringVar(&r.hooks.Commands[kind], hookNames[kind], "", "a `command` to run "+when)
	}
	r.Notifications.Flags(f)
	f.DurationVar(&r.hooks.Limit, "hook-timeout", 30*time.Second, "how long an --on-... command may run")
	f.StringVar(&r.address, "health-listen", "", "serve /livez, /readyz and /metrics at this `address`, host:port (default: none)")
}

func (r *reports) check() error {
	if r.hooks.Limit <= 0 {
		return terminal.Misuse("--hook-timeout %v: must be positive", r.hooks.Limit)
	}
	if _, _, err := net.SplitHostPort(r.address); err != nil && r.address != "" {
		return terminal.Misuse("--health-listen %q: must be host:port, such as :8118: %w", r.address, err)
	}
	return nil
}

// begin starts the reports. From then on, the candidate's failed heartbeats are counted.
func (r *reports) begin() error {
	r.asks, r.state.doing = make(chan struct{}), "verifying the table"
	r.probe = health.New(r.Table, r.name, hookNames[:], r.now, r.asks)
	r.hooks.Warn = r.complainOf
	r.hooks.Failed = func(k hookKind) { r.probe.HookFailed.WithLabelValues(k.String()).Inc() }
	r.candidate.Table.Store = r.counting(r.candidate.Table.Store)
	if r.address != "" {
		on, err := net.Listen("tcp", r.address)
		if err != nil {
			return fmt.Errorf("--health-listen %s: %w; to use any free port, set the port to 0", r.address, err)
		}
		r.ends = append(r.ends, health.Serve(on, r.probe.Handler()))
		r.sayOf("serving /livez, /readyz and /metrics at %s", terminal.URL(on.Addr()))
	}
	r.unit = health.Notify(r.asks)
	return nil
}

// counting returns a store that counts failed heartbeats. Each heartbeat is one call to the store.
func (r *reports) counting(s table.Store) table.Via {
	return func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
		err := call(ctx, s)
		if err != nil && step == "heartbeat" {
			r.probe.HeartbeatFailed.Inc()
		}
		return err
	}
}

// end waits for running hooks (see hooks.Wait), and then ends the reports.
func (r *reports) end(signals <-chan os.Signal) {
	r.unit.Stopping()
	r.hooks.Wait(signals)
	r.unit.End()
	for _, end := range r.ends {
		end()
	}
}

// with calls f with the state.
func (r *reports) with(f func(s *state)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.state)
}

func (r *reports) acquired(t *elect.Term) {
	r.with(func(s *state) { s.term, s.last = t, t.Token() })
	r.probe.Begun.Inc()
	r.hooks.Run(onAcquire, func() []string { return r.environment(t.Token()) })
}

func (r *reports) lost(why error) {
	r.does(false, "the lock is lost: %v", why)
	r.hooks.Run(onLost, func() []string { return r.because(why) })
}

func (r *reports) over() { r.with(func(s *state) { s.term = nil }) }

// stuck reports that a program or service that should have ended may still be running. Further calls report nothing
// until ranOut is called.
func (r *reports) stuck(why error) {
	var before bool
	r.with(func(s *state) { before, s.stuck = s.stuck, true })
	if !before {
		r.hooks.Run(onStuck, func() []string { return r.because(why) })
	}
}

// ranOut reports that no such program or service is running any longer.
func (r *reports) ranOut() { r.with(func(s *state) { s.stuck = false }) }

// because returns the environment for a hook, with the reason why the hook runs. It includes the token of the current
// or last term, if there was one.
func (r *reports) because(why error) (env []string) {
	r.with(func(s *state) { env = r.environment(s.last) })
	return append(env, reasonVariable+"="+reasonText(why))
}

// reasonText formats a reason for an environment variable.
func reasonText(why error) string { return terminal.Escape(why.Error()) }

// does records this process's activity, and whether its program is running or its service is active.
func (r *reports) does(active bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.with(func(s *state) { s.active, s.doing = active, text })
	r.unit.Status(text)
}

// narrated is what has been logged about the polls of a lock.
type narrated struct {
	holder  table.Token
	trouble string // the kind of the last error
}

// seen reports the result of a poll of the lock. It logs a holder or an error only if the token or the kind of error is
// new.
func (r *reports) seen(step elect.Step) {
	name := r.name
	if step.Err == nil && r.told.trouble != "" {
		r.told.trouble = ""
		r.log(slog.LevelInfo, "competing for %s again", name) // even with --quiet
	}
	switch {
	case step.Err != nil:
		kind := spanner.ErrCode(step.Err).String() // the code, because the messages differ in times and ids
		if errors.Is(step.Err, table.ErrNewer) {
			kind = "its row was " + table.ErrNewer.Error()
		}
		r.does(false, "on standby: can't compete for %s: %v", name, kind)
		if kind != r.told.trouble {
			r.told.trouble = kind
			r.complain("can't compete for %s, will try again: %v", name, r.Explain(step.Err))
		}
	case len(step.Seen) == 0: // the poll was interrupted
	case !slices.ContainsFunc(step.Seen, func(s elect.LockView) bool { return !s.Confirmed() || s.FreeIn <= 0 }):
		holder, token := terminal.Show(step.Seen[0].Holder()), step.Seen[0].Token
		if token != r.told.holder {
			r.told.holder = token
			r.say("waiting for %s: %s %s, token %v", name, heldBy("", step.Seen), holder, token)
		}
		r.does(false, "on standby: %s %s, token %v", heldBy(name+" is ", step.Seen), holder, token)
	default:
		r.does(false, "on standby: competing for %s", name)
	}
}

// heldBy begins a phrase that ends with the holder of the lock or of the first slot.
func heldBy(lockIs string, seen []elect.LockView) string {
	if len(seen) > 1 {
		return "no slot is free; the first is held by"
	}
	return lockIs + "held by"
}

// now returns the current report for the probe.
func (r *reports) now() (now health.Report) {
	r.with(func(s *state) {
		now = health.Report{Why: terminal.Escape(s.doing), Stuck: s.stuck}
		if s.term != nil && s.term.Held() {
			now.Held, now.Token, now.Left = true, int64(s.term.Token()), s.term.Left()
		}
		now.Ready = s.active && now.Held
		if s.active && !now.Held {
			now.Why = "the lock is lost"
		}
	})
	return now
}
