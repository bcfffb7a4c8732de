package compete

import "github.com/spindle-lock/spindle/cmd/spindle/internal/child"

// Beside does the work of a process that exec or guard starts beside itself: a watchdog, a watchdog's hook, or a program
// behind a gate. It returns the exit code, or false if the command line is none of these.
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
