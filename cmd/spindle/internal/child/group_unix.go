//go:build unix

package child

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported returns an error if this system can't run programs under a lock.
func Supported() error { return nil }

func ownGroup(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	return nil
}

func ownSession(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return nil
}

// inherited returns the file for a watchdog's replies. It sets close-on-exec on this file and on the other files that
// the watchdog got from its parent, so that the watchdog's own child processes don't inherit them.
func inherited() *os.File {
	const replies = 3
	closeOnExec(replies, 4, 5, 6, 7)
	_ = syscall.SetNonblock(replies, true) // for writeNow
	return os.NewFile(replies, "replies")
}

// inheritedFile returns a duplicate of the file with the given number if this process inherited that file and programs
// will inherit it, too. Otherwise it returns nil. Files that this process opened itself are close-on-exec, which
// distinguishes them from inherited files.
func inheritedFile(fd int) *os.File {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil
	}
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil // too many files are open, so the start fails anyway
	}
	return os.NewFile(uintptr(again), "inherited")
}

func closeOnExec(fds ...int) {
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
}

// become replaces this process with a program, in the same environment. It returns only if that fails.
func become(path string, args []string) error {
	stillDieWithParent()
	return syscall.Exec(path, args, os.Environ())
}

// writeNow writes to a pipe. It fails instead of waiting if the pipe is full.
func writeNow(pipe *os.File, line []byte) error {
	c, err := pipe.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Write(func(fd uintptr) bool {
		for failed = syscall.EINTR; failed == syscall.EINTR; {
			_, failed = syscall.Write(int(fd), line)
		}
		return true
	})
	return errors.Join(err, failed)
}

func signalGroup(group int, s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok && group > 1 {
		_ = syscall.Kill(-group, sig) // fails if the group no longer exists
	}
}

// goOn continues a stopped process.
func goOn(p *os.Process) { _ = p.Signal(syscall.SIGCONT) } // fails if the process has exited

// killGroup kills a group, even if it is stopped.
func killGroup(group int) { signalGroup(group, syscall.SIGKILL) }

// groupGone reports whether it is certain that no process of a killed group is still running. A killed group can't
// fork.
func groupGone(group int) bool {
	return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) || onlyZombies(group)
}

func thisGroup() int {
	group, _ := unix.Getpgid(0) // can't fail
	return group
}
