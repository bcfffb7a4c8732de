package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Beside runs the auxiliary processes that exec and guard start: a watchdog, a watchdog's hook, or a program behind a
// gate. If args belong to such a process, Beside does its work and returns its exit code. Otherwise, Beside returns
// false.
func Beside(args []string) (code int, is bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case watchdogCommand:
		return runWatchdog(args[1:]), true
	case hookCommand:
		runDetached(args[1:])
		return 0, true
	case child.Behind:
		child.Pass(args[1:])
		return child.CannotRun, true
	}
	return 0, false
}

// watchdogCommand is the first argument of a watchdog. hookCommand is the first argument of a process that runs --on-stuck
// for a watchdog. The watchdog can't wait for the hook itself: once the service is inactive, the watchdog must exit,
// because another guard may be waiting for it. The second argument of both processes is a duty.
const (
	watchdogCommand = "__watchdog"
	hookCommand     = "__hook"
)

// A duty is what exec or guard tells such a process.
type duty struct {
	Command               string // exec or guard
	Path, Table, Name, ID string
	Token                 table.Token

	Lease time.Duration // exec

	Renew               time.Duration // guard
	Confirm             int
	Deactivate, OnStuck []byte // commands need not be UTF-8, as strings in JSON must be
	HookLimit           time.Duration
}

// args returns the arguments of the process.
func (d duty) args(first string) []string {
	text, _ := json.Marshal(d) // can't fail
	return []string{first, string(text)}
}

// watchdogFormat is the environment variable that passes the parent's log format to a watchdog.
const watchdogFormat = "SPINDLE_LOG_FORMAT"

// watchdogEnvironment returns the environment for a watchdog and the commands that it runs. It includes the log format.
func (x *lockCommand) watchdogEnvironment() []string {
	return append(x.environment(0), watchdogFormat+"="+terminal.Stderr.Format.String())
}

// takeUp reads the duty of this process, which logs in its parent's format.
func takeUp(args []string) (d duty, ok bool) {
	_ = terminal.Stderr.Format.Set(os.Getenv(watchdogFormat))
	terminal.Stderr.Time()
	return d, len(args) == 1 && json.Unmarshal([]byte(args[0]), &d) == nil
}

// runWatchdog does the work of a watchdog.
func runWatchdog(args []string) (code int) {
	d, ok := takeUp(args)
	if !ok {
		fmt.Fprintln(os.Stderr, "spindle: "+watchdogCommand+" is an internal command, which only exec and guard start")
		return exit.Misused
	}
	// A watchdog exits only when its parent tells it to or has exited. It therefore catches the signals that would kill
	// it, including SIGPIPE, which it gets if the reader of its standard error has exited. It does not ignore these
	// signals, because the commands that it runs would then ignore them too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer terminal.Stderr.Detach()()
	lock := lockCommand{Database: &connect.Database{Path: d.Path, Table: d.Table, Timeout: longestAttempt}, name: d.Name, id: d.ID}
	if d.Command == "guard" {
		g := &guarding{lockCommand: lock, deactivate: string(d.Deactivate), renew: d.Renew, confirm: d.Confirm, duty: d}
		child.Watch(g.watchdogAction)
		return 0
	}
	lock.token = d.Token
	x := &execution{lockCommand: lock, lease: d.Lease}
	child.Watch(x.watchdogAction)
	return 0
}

// watchdogAction deactivates the service. It retries until a deactivation succeeds.
func (g *guarding) watchdogAction(a child.Act) {
	switch a.Why {
	case child.Dead:
		g.complain("%s: guard died, so its watchdog is deactivating the service", g.name)
	case child.Late:
		g.complain("%s: guard missed its deadline, so its watchdog is deactivating the service", g.name)
	}
	var once sync.Once
	stuck := func(err error) { once.Do(func() { g.detachHook(err) }) }
	late := func(err error) {
		if a.Why != child.Told { // otherwise guard is waiting, and runs the hook itself
			stuck(err)
		}
	}
	for err := g.switchOff(context.Background(), late); err != nil; err = g.switchOff(context.Background(), late) {
		if !a.Report(err) {
			g.complain("%s: THE SERVICE COULD NOT BE DEACTIVATED, trying again: %v", g.name, err)
			stuck(err)
		}
		time.Sleep(g.renew / 2)
	}
	if a.Why != child.Told {
		g.complain("%s: the service is inactive", g.name)
	}
}

const longestAttempt = 10 * time.Second

// watchdogAction kills the processes that left the program's group. If exec is only stopped, watchdogAction does
// nothing else, because exec may continue and still hold the lock.
//
// If exec has exited, watchdogAction waits until the whole program is gone, and then releases the lock, so that the
// next machine does not have to wait for the lease to expire. If part of the program is still running after one lease
// duration, or if the release fails, watchdogAction leaves the lock to expire.
func (x *execution) watchdogAction(a child.Act) {
	marks := []string{lockVariable + "=" + x.name, tokenVariable + "=" + x.token.String()}
	left := child.KillMarked(marks...)
	if a.Why != child.Dead {
		return
	}
	over, cancel := context.WithTimeout(context.Background(), x.lease)
	defer cancel()
	for pause := min(x.lease/200, 10*time.Millisecond); left || !a.Gone(); pause = min(2*pause, time.Second) { // pauses grow, because each attempt reads all processes
		elect.Sleep(over, elect.SystemClock{}, pause)
		if over.Err() != nil {
			return
		}
		left = child.KillMarked(marks...)
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

// detachHook runs --on-stuck in a separate process.
func (g *guarding) detachHook(why error) {
	if len(g.duty.OnStuck) == 0 {
		return
	}
	env := append(g.environment(0), tokenVariable+"="+g.duty.Token.String(), reasonVariable+"="+reasonText(why))
	if err := child.Detach(env, g.duty.args(hookCommand)...); err != nil {
		g.complain("%s: --%s could not be started: %v", g.name, onStuck, err)
	}
}

// runDetached does the work of the process that detachHook starts.
func runDetached(args []string) {
	d, _ := takeUp(args) // without a duty, there is no hook
	_ = os.Unsetenv(watchdogFormat)
	exit.OutliveReaders()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	r := reports{lockCommand: &lockCommand{name: d.Name, id: d.ID}}
	h := hooks{Commands: map[hookKind]string{onStuck: string(d.OnStuck)}, Limit: d.HookLimit, Warn: r.warn}
	h.Run(onStuck, os.Environ)
	h.Wait(nil)
}
