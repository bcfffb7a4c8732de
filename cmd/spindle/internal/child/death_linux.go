package child

import (
	"runtime"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// stillDieWithParent sets the parent-death signal again, just before this process calls exec. The kernel keeps this
// setting for each thread, so the thread that calls exec may not have the setting that dieWithParent made.
func stillDieWithParent() {
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
}
