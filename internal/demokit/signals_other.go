//go:build !unix

package demokit

import "syscall"

// Stories do not run on these systems, so the signals that pause and resume a child are never sent.
const (
	StopSignal     = syscall.SIGTERM
	ContinueSignal = syscall.SIGTERM
)
