//go:build unix && !linux

package child

import "syscall"

// dieWithParent does nothing: only Linux can do this, so elsewhere there is only the watchdog.
func dieWithParent(*syscall.SysProcAttr) {}

func stillDieWithParent() {}
