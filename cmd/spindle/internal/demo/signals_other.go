//go:build !unix

package demo

import "syscall"

// Nothing runs here that could be sent them.
const (
	stopSignal     = syscall.SIGTERM
	continueSignal = syscall.SIGTERM
)
