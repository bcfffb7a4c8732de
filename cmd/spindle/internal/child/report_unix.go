//go:build unix && !linux

package child

import (
	"os"
	"syscall"
)

// awaitReport waits until the kernel has a report about a process, and takes it.
func awaitReport(process int) report { return wait(process, 0) }

// dieWithParent does nothing. Only Linux has such a setting; on other systems, only the watchdog kills the child.
func dieWithParent(*syscall.SysProcAttr) {}

func stillDieWithParent() {}

// stopSelf stops this process, possibly only after it has returned. It does not use SIGTSTP, because Go never restores
// the default action of that signal.
func stopSelf() { _ = syscall.Kill(os.Getpid(), syscall.SIGTTIN) }
