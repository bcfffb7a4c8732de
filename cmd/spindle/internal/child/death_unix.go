//go:build unix && !linux

package child

import "syscall"

// dieWithParent is for Linux only: elsewhere the watchdog has to do.
func dieWithParent(*syscall.SysProcAttr) {}
