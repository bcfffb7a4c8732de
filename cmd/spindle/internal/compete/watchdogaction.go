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

// watchdogFormat is how a watchdog knows the log format of its parent.
const watchdogFormat = "SPINDLE_LOG_FORMAT"

// watchdogEnvironment is what the watchdog's commands get, with the log format.
func (x *lockCommand) watchdogEnvironment() []string {
	return append(x.environment(0), watchdogFormat+"="+terminal.Stderr.Format.String())
}

// runWatchdog is the work of a watchdog.
func runWatchdog(args []string) (code int) {
	if need := map[string]int{"guard": 11, "exec": 7}; len(args) == 0 || need[args[0]] != len(args) {
		fmt.Fprintln(os.Stderr, "spindle: "+watchdogCommand+" is for exec and guard, which start it")
		return exit.Misused
	}
	_ = terminal.Stderr.Format.Set(os.Getenv(watchdogFormat))
	terminal.Stderr.Time()
	// Nothing ends it but its parent, by what it says or by its death. Whoever read the standard error may
	// have died with the parent. (Ignored signals would be ignored by the commands that it runs.)
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

// watchdogAction is to deactivate the service, until that succeeds.
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
		if a.Why != child.Told { // else guard knows how long it waits, and runs the hook
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

// watchdogAction is to release the lock of an exec that is dead, once nobody works under its token any more: the next
// machine need not wait for the lease then. An exec that stands still may go on, and is not released. If it is not
// certain within a lease that the group is gone, the lock expires, as it does if this fails.
func (x *execution) watchdogAction(a child.Act) {
	marks := []string{lockVariable + "=" + x.name, tokenVariable + "=" + x.token.String()}
	left := child.KillMarked(marks...)
	if a.Why != child.Dead {
		return
	}
	over, cancel := context.WithTimeout(context.Background(), x.lease)
	defer cancel()
	for pause := min(x.lease/200, 10*time.Millisecond); left || !a.Gone(); pause = min(2*pause, time.Second) { // each look is one at all processes
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
	case !errors.Is(err, table.ErrSuperseded): // else it is not held any more
		x.complain("%s is left to expire: %v", x.name, err)
	}
}
