//go:build !unix

package demo

import "syscall"

// Demo does not run on these systems, so the signals are never sent.
const (
	stopSignal     = syscall.SIGTERM
	continueSignal = syscall.SIGTERM
)
