package subprocess

import "syscall"

// ownGroup keeps a terminal's Ctrl+C from the children: what they get is the parent's to say. The system
// kills a child whose parent is gone, which ends even one that is stopped, or is just being stopped. (It is
// the parent's thread that has to be gone: a Go program ends none but those of goroutines that lock them.)
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
