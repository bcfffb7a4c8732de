//go:build !unix

package cli

import (
	"os"
	"syscall"
)

var (
	endings  = []os.Signal{os.Interrupt}
	passedOn = endings
)

// Nothing runs here that could be sent them.
const (
	terminationSignal = syscall.SIGTERM
	stopSignal        = syscall.SIGTERM
	continueSignal    = syscall.SIGTERM
)

func ends(os.Signal) bool { return true }

func signalCode(os.Signal) int { return 130 }
