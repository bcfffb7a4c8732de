package compete

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/guard"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// watchdogCommand is the first argument of a watchdog. What follows is its action.
const watchdogCommand = "__watchdog"

// watchdogFormat is the variable that gives a watchdog its parent's log format.
const watchdogFormat = "SPINDLE_LOG_FORMAT"

// watchdogEnvironment returns the environment of the watchdog's commands, with the log format.
func (x *lockCommand) watchdogEnvironment() []string {
	return append(x.environment(0), watchdogFormat+"="+terminal.Stderr.Format.String())
}

// runWatchdog does the work of a watchdog.
func runWatchdog(args []string) (code int) {
	if need := map[string]int{"guard": 11, "exec": 7}; len(args) == 0 || need[args[0]] != len(args) {
		fmt.Fprintln(os.Stderr, "spindle: "+watchdogCommand+" is for exec and guard, which start it")
		return exit.Misused
	}
	_ = terminal.Stderr.Format.Set(os.Getenv(watchdogFormat))
	terminal.Stderr.Time()
	// Only its parent ends it, by an order or by its death. The reader of the standard error may have died with the parent.
	// (The commands that it runs would inherit ignored signals.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer terminal.Stderr.Detach()()
	lock := lockCommand{Database: &connect.Database{Path: args[1], Table: args[2], Timeout: longestAttempt}, name: args[3], id: args[4]}
	switch args[0] { // the parent wrote them
	case "guard":
		g := &guarding{lockCommand: lock, deactivate: args[7]}
		g.renew, _ = time.ParseDuration(args[5])
		g.confirm, _ = strconv.Atoi(args[6])
		g.stuckHook = args[8:]
		child.Watch(g.watchdogAction)
	case "exec":
		x := &execution{lockCommand: lock}
		x.lease, _ = time.ParseDuration(args[5])
		token, _ := strconv.ParseInt(args[6], 10, 64)
		x.token = table.Token(token)
		child.Watch(x.watchdogAction)
	}
	return 0
}

// watchdogAction deactivates the service, and retries until that succeeds.
func (g *guarding) watchdogAction(a child.Act) {
	switch a.Why {
	case child.Dead:
		g.complain("%s: guard is dead: its watchdog deactivates the service", g.name)
	case child.Late:
		g.complain("%s: guard stands still: its watchdog deactivates the service", g.name)
	}
	var once sync.Once
	stuck := func(err error) { once.Do(func() { g.detachHook(err) }) }
	late := func(err error) {
		if a.Why != child.Told { // otherwise guard knows how long it waits, and runs the hook
			stuck(err)
		}
	}
	for err := g.switchOff(context.Background(), late); err != nil; err = g.switchOff(context.Background(), late) {
		if !a.Report(err) {
			g.complain("%s: THE SERVICE COULD NOT BE DEACTIVATED, trying again: %v", g.name, err)
			stuck(err)
		}
		time.Sleep(guard.Pause(g.renew))
	}
	if a.Why != child.Told {
		g.complain("%s: the service is inactive", g.name)
	}
}

const longestAttempt = 10 * time.Second

// watchdogAction releases the lock of a dead exec once nothing works under its token any more, so that the next machine
// need not wait for the lease. It leaves the lock of a stopped exec, which may continue. If it is not certain within a
// lease that the group is gone, or if the release fails, the lock expires.
func (x *execution) watchdogAction(a child.Act) {
	marks := []string{lockVariable + "=" + x.name, tokenVariable + "=" + x.token.String()}
	left := child.KillMarked(marks...)
	if a.Why != child.Dead {
		return
	}
	over, cancel := context.WithTimeout(context.Background(), x.lease)
	defer cancel()
	for pause := min(x.lease/200, 10*time.Millisecond); left || !a.Gone(); pause = min(2*pause, time.Second) { // each look reads all processes
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
		x.complain("exec was killed: its watchdog has ended the program and released %s", x.name)
	case !errors.Is(err, table.ErrSuperseded): // otherwise it is not held any more
		x.complain("%s is left to expire: %v", x.name, err)
	}
}
