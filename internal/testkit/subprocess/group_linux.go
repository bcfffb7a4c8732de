package subprocess

import "syscall"

// ownGroup starts children in process groups of their own, so that a terminal's Ctrl+C does not reach them and the
// parent decides which signals they get. It also makes the kernel kill a child when the parent exits, even if the child
// is stopped.
//
// To the kernel, the parent is the thread that started the child, not the process. This makes no difference here,
// because Go ends a thread only when a goroutine that is locked to it exits.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
