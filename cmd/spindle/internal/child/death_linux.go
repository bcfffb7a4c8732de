package child

import (
	"runtime"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// stillDieWithParent repeats the setting of dieWithParent before this process becomes a program. The setting belongs to
// a thread, and the program inherits it from the thread that calls exec.
func stillDieWithParent() {
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
}
