//go:build !unix

package cli

import (
	"os"
	"syscall"
)

var passedOn = []os.Signal{os.Interrupt}

const terminationSignal = syscall.SIGTERM

func ends(os.Signal) bool { return true }

func signalCode(os.Signal) int { return 130 }
