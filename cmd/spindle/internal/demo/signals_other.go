//go:build !unix

package demo

import "syscall"

// No process here could get them.
const (
	stopSignal     = syscall.SIGTERM
	continueSignal = syscall.SIGTERM
)
