package compete

import "github.com/spindle-lock/spindle/cmd/spindle/internal/child"

// Beside does the work of a process that exec or guard starts beside itself, and returns its exit code, if the command line is
// of one: a watchdog, a hook of a watchdog, or a program that waits for its start.
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
