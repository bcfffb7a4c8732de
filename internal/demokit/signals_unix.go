//go:build unix

package demokit

import "syscall"

// The signals that pause and resume a child.
const (
	StopSignal     = syscall.SIGSTOP
	ContinueSignal = syscall.SIGCONT
)
