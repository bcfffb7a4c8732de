//go:build unix

package execcmd

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// endings are the signals that end exec. passedOn are the signals that exec passes on to the program. Signals that were
// ignored when exec started are left out, because signal.Notify would stop ignoring them: SIGHUP is ignored under
// nohup, and SIGINT in a script's background jobs. Go can report only for these two signals whether they were ignored.
var (
	endings  = slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
	passedOn = append([]os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}, endings...)
)

const terminationSignal = syscall.SIGTERM

func ends(s os.Signal) bool { return slices.Contains(endings, s) }

func signalCode(s os.Signal) int { return 128 + int(s.(syscall.Signal)) }

// asksForTerminal reports whether a program was stopped because it used the terminal without having it.
func asksForTerminal(s os.Signal) bool { return s == syscall.SIGTTIN || s == syscall.SIGTTOU }

const keyStop = syscall.SIGTSTP

// interrupt returns the signal if the exit code shows that a key ended the program. Otherwise it returns nil.
func interrupt(code int) os.Signal {
	switch code {
	case signalCode(syscall.SIGINT):
		return syscall.SIGINT
	case signalCode(syscall.SIGQUIT):
		return syscall.SIGQUIT
	}
	return nil
}
