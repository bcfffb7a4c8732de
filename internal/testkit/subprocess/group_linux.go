package subprocess

import "syscall"

// ownGroup keeps a terminal's Ctrl+C from the children, so that the parent decides which signals they get. It also
// makes the kernel kill a child when the child's parent exits, even if the child is stopped or is just being stopped.
// To the kernel, the parent is the thread that started the child. That thread normally lives as long as the program,
// because a Go program ends a thread only if a goroutine has locked it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
