//go:build !unix

package execcmd

import (
	"os"
	"syscall"
)

var (
	endings  = []os.Signal{os.Interrupt}
	passedOn = endings
)

// No process here could get it.
const terminationSignal = syscall.SIGTERM

func ends(os.Signal) bool { return true }

func signalCode(os.Signal) int { return 130 }

func asksForTerminal(os.Signal) bool { return false }

const keyStop = syscall.SIGTERM // there is no such key

func interrupt(int) os.Signal { return nil }
