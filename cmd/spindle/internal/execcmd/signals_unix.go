//go:build unix

package execcmd

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// endings are the signals that are about ending. Under nohup, the end of the terminal is not: to wait for a signal that
// is ignored would end that, for the program too.
var endings = slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, func(s os.Signal) bool {
	return s == syscall.SIGHUP && signal.Ignored(s)
})

// passedOn are the signals that a program gets from exec.
var passedOn = append([]os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}, endings...)

const terminationSignal = syscall.SIGTERM

func ends(s os.Signal) bool { return slices.Contains(endings, s) }

func signalCode(s os.Signal) int { return 128 + int(s.(syscall.Signal)) }
