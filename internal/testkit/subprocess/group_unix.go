//go:build unix && !linux

package subprocess

import "syscall"

// ownGroup keeps a terminal's Ctrl+C from the children, so that the parent decides which signals they get. It also
// makes stopped children end when their parent is killed, because the kernel sends SIGHUP to a stopped process group
// once no process is left that could continue it (setpgid(2)).
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
