//go:build unix

package run

import (
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
)

// endings are the signals that end exec, and passedOn are the signals that exec passes on to the program. If SIGHUP or
// SIGINT was ignored when exec started, for example under nohup or in a background job of a script, it is in neither
// list, because signal.Notify would make exec stop ignoring it. For other signals, Go can't detect this.
var (
	endings  = slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
	passedOn = append([]os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}, endings...)
)

const terminationSignal = syscall.SIGTERM

func ends(s os.Signal) bool { return slices.Contains(endings, s) }

func signalCode(s os.Signal) int { return 128 + int(s.(syscall.Signal)) }

// asksForTerminal reports whether a program was stopped because it used the terminal in the background.
func asksForTerminal(s os.Signal) bool { return s == syscall.SIGTTIN || s == syscall.SIGTTOU }

const keyStop = syscall.SIGTSTP

// interrupt returns the signal that killed the program if, according to the exit code, this was SIGINT (Ctrl-C) or
// SIGQUIT (Ctrl-\). Otherwise, it returns nil.
func interrupt(code int) os.Signal {
	switch code {
	case signalCode(syscall.SIGINT):
		return syscall.SIGINT
	case signalCode(syscall.SIGQUIT):
		return syscall.SIGQUIT
	}
	return nil
}

// owner returns the id of the file's owner, or -1 if it is not known.
func owner(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

// openTerminal opens exec's controlling terminal. It returns nil if there is none.
func openTerminal() Terminal {
	if t := child.OpenTerminal(); t != nil {
		return t
	}
	return nil
}
