package run

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// hookCommand is the first argument of the process that runs --on-stuck for a watchdog. The watchdog can't wait for the
// hook itself. Once the service is inactive, the watchdog must exit, because another guard may be waiting for it.
const hookCommand = "__hook"

// detachHook runs --on-stuck in a separate process.
func (g *guarding) detachHook(why error) {
	token, limit, command := g.stuckHook[0], g.stuckHook[1], g.stuckHook[2]
	if command == "" {
		return
	}
	env := append(g.environment(0), tokenVariable+"="+token, reasonVariable+"="+reasonText(why))
	if err := child.Detach(env, hookCommand, g.name, g.id, limit, command); err != nil {
		g.complain("%s: --%s could not be started: %v", g.name, onStuck, err)
	}
}

// runDetached does the work of the process that detachHook starts.
func runDetached(args []string) {
	_ = terminal.Stderr.Format.Set(os.Getenv(watchdogFormat))
	_ = os.Unsetenv(watchdogFormat)
	terminal.Stderr.Time()
	exit.OutliveReaders()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	r := reports{lock: &lockCommand{name: args[0], id: args[1]}}
	h := hooks{Commands: map[hookKind]string{onStuck: args[3]}, Warn: r.warn}
	h.Limit, _ = time.ParseDuration(args[2])
	h.Run(onStuck, os.Environ)
	h.Wait(nil)
}
