package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/health"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// reportsHelp returns the help for the flags of reports.
func reportsHelp(command, ready string) string {
	return fmt.Sprintf(`
--on-acquire, --on-lost and --on-stuck each set a hook. A hook is a command that
/bin/sh runs when the event occurs. Its environment contains the variables
above, including SPINDLE_TOKEN. For --on-lost and --on-stuck, it also contains
SPINDLE_REASON. Hooks write to standard error.

Hooks run in the background. If a hook is still running after --hook-timeout, it
is killed with its process group. If a hook fails or is killed, %[1]s logs this
but does nothing else. At most one hook of each kind runs at a time. When %[1]s
exits, it first gives up the lock and then waits for hooks that are running.

--health-listen serves these paths over HTTP, without authentication:
  /livez    200 if the main loop of %[1]s answers within a second, otherwise 503
  /readyz   200 %[2]s, otherwise 503 and the reason
  /metrics  metrics for Prometheus

In a systemd unit with Type=notify, systemctl status shows what %[1]s is doing.
With WatchdogSec=, systemd restarts %[1]s if its main loop hangs.
`, command, ready)
}

// reports passes events on to hooks, probes and systemd.
type reports struct {
	reportFlags
	*lockCommand
	told  narrated
	asks  chan struct{} // the main loop receives from it
	hooks hooks
	probe *health.Probe // or nil
	close func()        // closes the probe's listener, or nil
	unit  *health.Unit
	once  sync.Once // for ready

	mu     sync.Mutex // guards the rest
	term   *elect.Term
	last   table.Token // the token of the current or last term
	active bool        // the program is running, or the service is active, as far as is known
	stuck  bool
	doing  string
}

// reportFlags select the reports.
type reportFlags struct {
	commands map[hookKind]*string
	limit    time.Duration // for a hook
	listen   string
}

func (r *reportFlags) flags(f *pflag.FlagSet, stuck string) {
	r.commands = map[hookKind]*string{}
	for kind, when := range map[hookKind]string{
		onAcquire: "when the lock is acquired",
		onLost:    "when the lock is lost rather than released",
		onStuck:   stuck,
	} {
		r.commands[kind] = f.String(string(kind), "", "a `command` to run "+when)
	}
	f.DurationVar(&r.limit, "hook-timeout", 30*time.Second, "how long an --on-... command may run")
	f.StringVar(&r.listen, "health-listen", "", "serve /livez, /readyz and /metrics at this `address`, host:port (default: none)")
}

func (r *reportFlags) check() error {
	if r.limit <= 0 {
		return exit.Misuse("--hook-timeout %v: must be positive", r.limit)
	}
	if _, _, err := net.SplitHostPort(r.listen); err != nil && r.listen != "" {
		return exit.Misuse("--health-listen %q: must be host:port, such as :8118: %w", r.listen, err)
	}
	return nil
}

// begin starts the reports on a candidate. From then on, the candidate's failed heartbeats are counted.
func (r *reports) begin(lock *lockCommand, c *elect.Candidate) error {
	r.lockCommand, r.asks, r.doing = lock, make(chan struct{}), "verifying the table"
	r.hooks.Commands, r.hooks.Limit, r.hooks.Warn = map[hookKind]string{}, r.limit, r.warn
	var names []string
	for _, kind := range hookKinds {
		r.hooks.Commands[kind] = *r.commands[kind]
		names = append(names, string(kind))
	}
	if r.listen != "" {
		on, err := net.Listen("tcp", r.listen)
		if err != nil {
			return fmt.Errorf("--health-listen %s: %w; to use any free port, set the port to 0", r.listen, err)
		}
		r.probe = health.New(lock.Table, lock.name, names, r.now, r.asks)
		r.close = health.Serve(on, r.probe.Handler())
		r.hooks.Failed = func(k hookKind) { r.probe.Count(health.Counter(k)) }
		c.Table.Store = r.counting(c.Table.Store)
		lock.say("%s: serving /livez, /readyz and /metrics at %s", lock.name, terminal.URL(on.Addr()))
	}
	r.unit = health.Notify(r.asks)
	return nil
}

// counting returns a store that counts failed heartbeats. Each heartbeat is one call.
func (r *reports) counting(s table.Store) table.Via {
	return func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
		err := call(ctx, s)
		if err != nil && step == "heartbeat" {
			r.probe.Count(health.HeartbeatFailed)
		}
		return err
	}
}

func (r *reports) warn(format string, args ...any) {
	r.lockCommand.complain("%s: "+format, append([]any{r.lockCommand.name}, args...)...)
}

// ready reports to systemd, once, that this process competes for the lock.
func (r *reports) ready() { r.once.Do(r.unit.Ready) }

// compete reports that the main loop begins and immediately competes for the lock.
func (r *reports) compete() {
	r.does(false, "on standby: competing for %s", r.lockCommand.name)
	r.probe.Looping()
	r.ready()
}

// Ending reports that this process received a signal to end.
func (r *reports) Ending() { r.unit.Stopping() }

// end waits for hooks, until stop is closed at the latest, and ends the reports.
func (r *reports) end(stop <-chan struct{}) {
	r.unit.Stopping()
	r.hooks.Wait(stop)
	if r.close != nil {
		r.close()
	}
	r.unit.End()
}

// Begin reports that the lock was acquired.
func (r *reports) Begin(t *elect.Term) {
	r.mu.Lock()
	r.term, r.last = t, t.Token()
	r.mu.Unlock()
	r.probe.Count(health.Begun)
	r.hooks.Run(onAcquire, func() []string { return r.lockCommand.environment(t.Token()) })
}

// Lost reports that the lock was lost.
func (r *reports) Lost(why error) {
	r.probe.Count(health.Lost)
	r.does(false, "the lock is lost: %v", why)
	r.hooks.Run(onLost, func() []string { return r.because(why) })
}

// Over reports that the lock is no longer held.
func (r *reports) Over() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term = nil
}

// Stuck reports that a program or service that should have ended may still be running. It reports this only once,
// until ranOut is called.
func (r *reports) Stuck(why error) {
	r.mu.Lock()
	before := r.stuck
	r.stuck = true
	r.mu.Unlock()
	if !before {
		r.hooks.Run(onStuck, func() []string { return r.because(why) })
	}
}

// ranOut reports that no such program or service is running any longer.
func (r *reports) ranOut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck = false
}

// because returns the environment for a hook, with the reason why the hook runs. It includes the token of the current
// or last term, if there was one.
func (r *reports) because(why error) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(r.lockCommand.environment(r.last), reasonVariable+"="+reasonText(why))
}

// reasonText formats a reason for an environment variable.
func reasonText(why error) string { return terminal.Escape(why.Error()) }

// does records this process's activity, and whether its program is running or its service is active.
func (r *reports) does(active bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.active, r.doing = active, text
	r.mu.Unlock()
	r.unit.Status(text)
}

// narrated is what was logged of the polls of a lock.
type narrated struct {
	holder  table.Token
	trouble string // the kind of the last error
}

// Seen reports the result of a poll of the lock. It logs each holder once, and each new kind of error once.
func (r *reports) Seen(step elect.Step) {
	name := r.lockCommand.name
	if step.Err == nil && r.told.trouble != "" {
		r.told.trouble = ""
		r.relieve("competing for %s again", name)
	}
	switch {
	case step.Err != nil:
		kind := spanner.ErrCode(step.Err).String() // the code, because the texts differ in times and ids
		r.does(false, "on standby: can't compete for %s: %v", name, kind)
		if errors.Is(step.Err, table.ErrNewer) {
			kind = "newer"
		}
		if kind != r.told.trouble {
			r.told.trouble = kind
			r.complain("can't compete for %s, will try again: %v", name, r.Explain(step.Err))
		}
	case len(step.Seen) == 0: // the poll was interrupted
	case step.Seen[0].Confirmed() && step.Seen[0].FreeIn > 0:
		holder, token := terminal.Show(step.Seen[0].Holder()), step.Seen[0].Token
		if token != r.told.holder {
			r.told.holder = token
			r.say("waiting for %s: held by %s, token %v", name, holder, token)
		}
		r.does(false, "on standby: %s is held by %s, token %v", name, holder, token)
	default:
		r.does(false, "on standby: competing for %s", name)
	}
}

// now returns the current report for the probe.
func (r *reports) now() health.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := health.Report{Why: terminal.Escape(r.doing), Stuck: r.stuck}
	if r.term != nil && r.term.Held() {
		now.Held, now.Token, now.Left = true, int64(r.term.Token()), r.term.Left()
	}
	now.Ready = r.active && now.Held
	if r.active && !now.Held {
		now.Why = "the lock is lost"
	}
	return now
}
