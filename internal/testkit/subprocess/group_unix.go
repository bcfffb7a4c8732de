//go:build unix && !linux

package subprocess

import "syscall"

// ownGroup starts children in process groups of their own, so that a terminal's Ctrl+C does not reach them and the
// parent decides which signals they get. If the parent is killed while a child is stopped, the kernel sends SIGHUP to
// the child's process group, so the child still ends. See setpgid(2).
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
