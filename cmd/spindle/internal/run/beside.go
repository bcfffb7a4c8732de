package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Beside does the work of an auxiliary process that exec or guard has started: a watchdog, or a process that waits to
// become a program (see child.Behind). It returns the process's exit code and true, unless the process becomes the
// program. If args do not belong to such a process, it returns false.
func Beside(args []string) (code int, is bool) {
	switch {
	case len(args) == 0:
	case args[0] == watchdogCommand:
		return runWatchdog(args[1:]), true
	case args[0] == child.Behind:
		child.Pass(args[1:])
		return child.CannotRun, true
	}
	return 0, false
}

// watchdogCommand is the first argument of a watchdog. The second argument is the watchdog's duty, in JSON.
const watchdogCommand = "__watchdog"

// A duty is what exec or guard tells its watchdog.
type duty struct {
	Path, Table, Name, ID string
	LogFormat             string
	Token                 table.Token

	Lease time.Duration // for exec

	Renew               time.Duration // for guard; 0 for exec
	Confirm             int
	Deactivate, OnStuck []byte // strings in JSON must be UTF-8, but commands need not be
	HookLimit           time.Duration
}

// watchdog starts a watchdog with a duty and a deadline.
func (x *lockCommand) watchdog(d duty, until time.Time, files ...*os.File) (*child.Watchdog, error) {
	d.Path, d.Table, d.Name, d.ID, d.LogFormat = x.Path, x.Table, x.held(), x.id, terminal.Stderr.Format.String()
	text, _ := json.Marshal(d) // can't fail
	return child.StartWatchdog(until, x.environment(0), []string{watchdogCommand, string(text)}, files...)
}

// runWatchdog does the work of a watchdog.
func runWatchdog(args []string) (code int) {
	var d duty
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &d) != nil {
		fmt.Fprintln(os.Stderr, "spindle: "+watchdogCommand+" is an internal command, which only exec and guard start")
		return terminal.Misused
	}
	_ = terminal.Stderr.Format.Set(d.LogFormat)
	terminal.Stderr.Time()
	// Only the parent's order or exit should end a watchdog. The watchdog therefore catches the common signals that
	// would kill it. It gets one of them, SIGPIPE, if the reader of its standard error has exited. It does not
	// ignore these signals, because the commands that it runs would then ignore them too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer terminal.Stderr.Detach()()
	lock := lockCommand{Database: &database.Database{Path: d.Path, Table: d.Table, Timeout: longestAttempt}, name: d.Name, id: d.ID}
	if d.Renew == 0 {
		lock.token = d.Token
		x := &execution{reports: reports{lockCommand: lock}, lease: d.Lease}
		child.Watch(x.watchdogAction)
		return 0
	}
	g := &guarding{reports: reports{lockCommand: lock, state: state{last: d.Token}}, deactivate: string(d.Deactivate), renew: d.Renew, confirm: d.Confirm}
	g.hooks = hooks{Commands: [...]string{onStuck: string(d.OnStuck)}, Limit: d.HookLimit, Warn: g.complainOf}
	child.Watch(g.watchdogAction)
	g.hooks.Wait(nil) // Watch has closed the lock file, so another guard need not wait for hooks
	return 0
}

// watchdogAction deactivates the service. It retries until a deactivation succeeds.
func (g *guarding) watchdogAction(a child.Act) {
	switch a.Why {
	case child.Dead:
		g.complainOf("guard died, so its watchdog is deactivating the service")
	case child.Late:
		g.complainOf("guard missed its deadline, so its watchdog is deactivating the service")
	}
	late := func(err error) {
		if a.Why != child.Told { // otherwise guard is waiting, and runs the hook itself
			g.stuck(err)
		}
	}
	for err := g.switchOff(late); err != nil; err = g.switchOff(late) {
		if !a.Report(err) {
			g.complainOf("THE SERVICE COULD NOT BE DEACTIVATED, trying again: %v", err)
			g.stuck(err)
		}
		time.Sleep(g.renew / 2)
	}
	g.ranOut()
	if a.Why != child.Told {
		g.complainOf("the service is inactive")
	}
}

// switchOff runs the --deactivate command. If the command takes too long, switchOff kills it, and passes an error to
// late without waiting for it to exit. Even a killed command may take a while to exit, for example because it is
// waiting for a disk.
func (g *guarding) switchOff(late func(error)) error {
	limit := g.confirmation() * 9 / 10 // the rest is for starting and killing the command
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { late(fmt.Errorf("the deactivation is taking too long: %w", ctx.Err())) })()
	err := g.shell(ctx, g.deactivate, 0, child.Command{Leaving: true})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("killed after %v: %w", limit, err)
	}
	return err
}

const longestAttempt = 10 * time.Second

// watchdogAction kills the processes that have left the program's group but still have the lock's variables in their
// environment, except exec's hooks. This is possible only on Linux. It looks for them again until none is left, for up
// to a second, because they may start others while it looks. If exec is only stopped or too slow, watchdogAction says so
// and does nothing else, because exec may continue and still hold the lock.
//
// If exec has exited, watchdogAction waits until these processes and the program's group are gone. It then releases the
// lock, so that the next machine does not have to wait until the lease expires. If processes are left after one lease
// duration, or if the release fails, watchdogAction leaves the lock to expire.
func (x *execution) watchdogAction(a child.Act) {
	marks := []string{lockVariable + "=" + x.name, tokenVariable + "=" + x.token.String()}
	left, dead, limit := child.KillMarked(hookVariable, marks...), a.Why == child.Dead, x.lease
	if a.Why == child.Late {
		x.complainOf("exec missed its deadline, so its watchdog ended the program")
	}
	if !dead {
		limit = min(limit, time.Second)
	}
	over, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for pause := min(x.lease/200, 10*time.Millisecond); left || dead && !a.Gone(); pause = min(2*pause, time.Second) { // pauses grow, because each attempt reads all processes
		elect.Sleep(over, elect.SystemClock{}, pause)
		if over.Err() != nil {
			return
		}
		left = child.KillMarked(hookVariable, marks...)
	}
	if !dead {
		return
	}
	db, err := x.Open()
	if err != nil {
		x.complain("%s is left to expire: %v", x.name, err)
		return
	}
	defer db.Close()
	err = elect.Insist(over, elect.SystemClock{}, x.lease, func(ctx context.Context) error {
		return db.Locks().Release(ctx, x.token, x.name)
	})
	switch {
	case err == nil:
		x.complain("exec was killed, so its watchdog ended the program and released %s", x.name)
	case !errors.Is(err, table.ErrSuperseded): // otherwise the lock is no longer held
		x.complain("%s is left to expire: %v", x.name, err)
	}
}
