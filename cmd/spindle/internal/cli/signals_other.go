//go:build !unix

package cli

import "syscall"

// Nothing runs here that could be sent them.
const (
	stopSignal     = syscall.SIGTERM
	continueSignal = syscall.SIGTERM
)
