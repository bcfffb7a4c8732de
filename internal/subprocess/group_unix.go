//go:build unix && !linux

package subprocess

import "syscall"

// ownGroup keeps a terminal's Ctrl+C from the children: what they get is the parent's to say. It also
// sees to children that are stopped when their parent is killed: the system hangs up on a process
// group that has nobody left to continue it (setpgid(2)).
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
