//go:build unix

package cli

import (
	"os"
	"syscall"
)

// passedOn are the signals that a program gets from exec.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}

const (
	terminationSignal = syscall.SIGTERM
	stopSignal        = syscall.SIGSTOP
	continueSignal    = syscall.SIGCONT
)

// ends reports whether a signal is about ending.
func ends(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP || s == syscall.SIGQUIT
}

func signalCode(s os.Signal) int { return 128 + int(s.(syscall.Signal)) }
