package compete

import "github.com/spindle-lock/spindle/cmd/spindle/internal/child"

// Beside does the work of the auxiliary processes that exec and guard start: a watchdog, a watchdog's hook, or a
// program behind a gate. It returns the process's exit code, or false if args don't belong to one of them.
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
