package subprocess

import "syscall"

// ownGroup keeps a terminal's Ctrl+C from the children: the parent decides which signals they get. The system
// kills a child whose parent is gone, even one that is stopped, or is just being stopped. (To the system the parent is
// the thread that started the child: a Go program only ends threads that a goroutine has locked.)
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
