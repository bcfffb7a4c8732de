//go:build unix && !linux

package child

import "syscall"

// dieWithParent does nothing. Only Linux has such a setting; on other systems, only the watchdog kills the child.
func dieWithParent(*syscall.SysProcAttr) {}

func stillDieWithParent() {}
