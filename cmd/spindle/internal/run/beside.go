package run

import "github.com/spindle-lock/spindle/cmd/spindle/internal/child"

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
