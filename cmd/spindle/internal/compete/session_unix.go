//go:build unix

package compete

import (
	"os/exec"
	"syscall"
)

// ownSession keeps a process from the signals of this one's group and terminal.
func ownSession(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
