//go:build unix && !linux

package subprocess

import "syscall"

// ownGroup keeps a terminal's Ctrl+C from the children: the parent decides which signals they get. It also
// ends children that are stopped when their parent is killed: the system sends SIGHUP to a stopped process
// group that has nobody left to continue it (setpgid(2)).
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
