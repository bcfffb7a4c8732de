package child

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitReport waits until the kernel has a report about a process, and leaves the report in the kernel. The kernel
// drops the report of a stop if the process is continued before the report is taken.
func awaitReport(process int) (r report) {
	for {
		r.err = unix.Waitid(unix.P_PID, process, nil, unix.WEXITED|unix.WSTOPPED|unix.WCONTINUED|unix.WNOWAIT, nil)
		if !errors.Is(r.err, syscall.EINTR) {
			return r
		}
	}
}

// dieWithParent makes the kernel kill the child when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// stillDieWithParent sets the parent-death signal again, just before this process calls exec. The signal is set per
// thread, and dieWithParent may have set it for a thread other than the one that calls exec.
func stillDieWithParent() {
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
}

// stopSelf stops this process. It does not use SIGTSTP, because Go never restores the default action of that signal. It
// sends the signal to its own thread, which therefore stops before stopSelf returns, however busy the machine is.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGTTIN)
}
