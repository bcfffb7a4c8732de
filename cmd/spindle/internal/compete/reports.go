package compete

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/hooks"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/probe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/systemd"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// reportsHelp explains the flags of reports.
func reportsHelp(command, ready string) string {
	return fmt.Sprintf(`
--on-acquire, --on-lost and --on-stuck are hooks: commands that /bin/sh runs
when that happens. They get the variables above with SPINDLE_TOKEN, and the last
two get SPINDLE_REASON. A hook runs beside everything else: it delays nothing
and decides nothing. If it still runs after --hook-timeout, it is killed with
its process group. A hook that fails or is killed is logged, and changes
nothing. At most one of a kind runs at a time. At its end, when the lock is
given up, %[1]s waits for hooks that still run. Their output goes to the
standard error.

--health-listen answers on an address, without a log-in:
  /livez    200 if the loop of %[1]s answers within a second, else 503
  /readyz   200 %[2]s, else 503 and why
  /metrics  for Prometheus

In a systemd unit with Type=notify, systemctl status shows what %[1]s does. With
WatchdogSec=, systemd restarts it if its loop hangs.
`, command, ready)
}

// reports tell hooks, probes and systemd what happens.
type reports struct {
	reportFlags
	lock  *lockCommand
	asks  chan struct{} // the loop receives from it
	hooks hooks.Hooks
	probe *probe.Probe // or nil
	close func()       // the listener
	unit  *systemd.Unit
	once  sync.Once // that it is ready

	mu     sync.Mutex // guards the rest
	term   *elect.Term
	token  table.Token // of the last term
	active bool        // the program runs, or the service is active, as far as is known
	stuck  bool
	doing  string
}

// reportFlags say which reports there are.
type reportFlags struct {
	commands map[hooks.Kind]*string
	limit    time.Duration // of a hook
	listen   string
}

func (r *reportFlags) flags(f *pflag.FlagSet, stuck string) {
	r.commands = map[hooks.Kind]*string{}
	for kind, when := range map[hooks.Kind]string{
		hooks.Acquire: "when the lock is acquired",
		hooks.Lost:    "when the lock is lost, not released",
		hooks.Stuck:   stuck,
	} {
		r.commands[kind] = f.String(string(kind), "", "a `command` to run "+when)
	}
	f.DurationVar(&r.limit, "hook-timeout", 30*time.Second, "how long a command of --on-... may run")
	f.StringVar(&r.listen, "health-listen", "", "the `address`, host:port, at which to answer /livez, /readyz and /metrics (default: none)")
}

func (r *reportFlags) check() error {
	if r.limit <= 0 {
		return exit.Misuse("--hook-timeout %v: must be positive", r.limit)
	}
	if _, _, err := net.SplitHostPort(r.listen); err != nil && r.listen != "" {
		return exit.Misuse("--health-listen %q: want host:port, such as :8118: %w", r.listen, err)
	}
	return nil
}

// begin begins to report on a candidate, and counts its failed heartbeats from now on.
func (r *reports) begin(lock *lockCommand, c *elect.Candidate) error {
	r.lock, r.asks, r.doing = lock, make(chan struct{}), "verifying the table"
	r.hooks.Commands, r.hooks.Limit, r.hooks.Warn = map[hooks.Kind]string{}, r.limit, r.warn
	var names []string
	for _, kind := range hooks.Kinds {
		r.hooks.Commands[kind] = *r.commands[kind]
		names = append(names, string(kind))
	}
	if r.listen != "" {
		on, err := net.Listen("tcp", r.listen)
		if err != nil {
			return fmt.Errorf("--health-listen %s: %w: port 0 takes a free one", r.listen, err)
		}
		r.probe = probe.New(lock.Table, lock.name, names, r.now, r.asks)
		r.close = probe.Serve(on, r.probe.Handler())
		r.hooks.Failed = func(k hooks.Kind) { r.probe.HookFailed(string(k)) }
		c.Table.Store = r.counting(c.Table.Store)
		lock.say("%s: /livez, /readyz and /metrics are at %s", lock.name, terminal.URL(on.Addr()))
	}
	r.unit = systemd.Begin(r.asks)
	return nil
}

// counting counts failed heartbeats. Each heartbeat is one call.
func (r *reports) counting(s table.Store) table.Via {
	return func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
		err := call(ctx, s)
		if err != nil && step == "heartbeat" {
			r.probe.HeartbeatFailed()
		}
		return err
	}
}

func (r *reports) warn(format string, args ...any) {
	r.lock.complain("%s: "+format, append([]any{r.lock.name}, args...)...)
}

// looping says that the loop begins.
func (r *reports) looping() {
	if r.probe != nil {
		r.probe.Looping()
	}
}

// ready says that this process competes for the lock.
func (r *reports) ready() { r.once.Do(r.unit.Ready) }

// compete is for a process that competes as soon as its loop begins.
func (r *reports) compete() {
	r.does(false, "on standby: competing for %s", r.lock.name)
	r.looping()
	r.ready()
}

// ending says that this process got a signal to end.
func (r *reports) ending(os.Signal) { r.unit.Stopping() }

// end waits for hooks, but not after stop is closed, and ends the reports.
func (r *reports) end(stop <-chan struct{}) {
	r.unit.Stopping()
	r.hooks.Wait(stop)
	if r.close != nil {
		r.close()
	}
	r.unit.End()
}

func (r *reports) acquired(t *elect.Term) {
	r.mu.Lock()
	r.term, r.token = t, t.Token()
	r.mu.Unlock()
	if r.probe != nil {
		r.probe.Begun()
	}
	r.hooks.Run(hooks.Acquire, func() []string { return r.lock.environment(t.Token()) })
}

// lost says that the lock of the last term was lost.
func (r *reports) lost(why error) {
	if r.probe != nil {
		r.probe.Lost()
	}
	r.does(false, "the lock is lost: %v", why)
	r.hooks.Run(hooks.Lost, func() []string { return r.because(why) })
}

// over says that the lock is not held any more.
func (r *reports) over() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term = nil
}

// runsOn reports that what must not run any more may still run. Until ranOut, later calls do nothing.
func (r *reports) runsOn(why error) {
	r.mu.Lock()
	before := r.stuck
	r.stuck = true
	r.mu.Unlock()
	if !before {
		r.hooks.Run(hooks.Stuck, func() []string { return r.because(why) })
	}
}

// ranOut reports that nothing runs any more that must not.
func (r *reports) ranOut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck = false
}

// because returns the environment of a hook that gets a reason, with the last term's token if there was one.
func (r *reports) because(why error) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(r.lock.environment(r.token), reasonVariable+"="+reasonText(why))
}

// reasonText makes a reason fit for an environment variable.
func reasonText(why error) string { return terminal.Escape(why.Error()) }

// does notes what this process does, and whether its program runs or its service is active.
func (r *reports) does(active bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.active, r.doing = active, text
	r.mu.Unlock()
	r.unit.Status(text)
}

// waits says what a look at the lock found.
func (r *reports) waits(step elect.Step) {
	switch {
	case step.Err != nil:
		r.does(false, "on standby: can't compete for %s: %v", r.lock.name, spanner.ErrCode(step.Err))
	case len(step.Seen) == 0: // the look was interrupted
	case step.Seen[0].Confirmed() && step.Seen[0].FreeIn > 0:
		r.does(false, "on standby: %s is held by %s, token %v", r.lock.name, terminal.Show(step.Seen[0].Holder()), step.Seen[0].Token)
	default:
		r.does(false, "on standby: competing for %s", r.lock.name)
	}
}

// now returns the report for the probe.
func (r *reports) now() probe.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := probe.Report{Why: terminal.Escape(r.doing), Stuck: r.stuck}
	if r.term != nil && r.term.Held() {
		now.Held, now.Token, now.Left = true, int64(r.term.Token()), r.term.Left()
	}
	now.Ready = r.active && now.Held
	if r.active && !now.Held {
		now.Why = "the lock is lost"
	}
	return now
}
