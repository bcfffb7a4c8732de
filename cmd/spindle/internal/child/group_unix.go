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

// inherited returns the files that a watchdog got from its parent. The watchdog writes its replies to the first file.
// It does not use the other files, but keeps them open. The commands that the watchdog runs don't inherit the files.
func inherited() (replies *os.File, kept []*os.File) {
	const first = 3
	for fd := first + 1; inherits(fd); fd++ {
		syscall.CloseOnExec(fd)
		kept = append(kept, os.NewFile(uintptr(fd), "kept"))
	}
	syscall.CloseOnExec(first)
	_ = syscall.SetNonblock(first, true) // for writeNow
	return os.NewFile(first, "replies"), kept
}

// inherits reports whether this process got a descriptor from its parent. It recognizes such descriptors by the missing
// close-on-exec flag, because Go's standard library sets the flag on every file that it opens.
func inherits(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}

// inheritedFile returns a duplicate of the descriptor fd if this process inherited it and should pass it on to
// programs. Otherwise, it returns nil.
func inheritedFile(fd int) *os.File {
	if !inherits(fd) {
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

// groupGone reports whether every process of a killed group has exited. It returns false if it can't tell. Once every
// process has exited, the group stays empty, because killed processes can't fork.
func groupGone(group int) bool {
	return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) || onlyZombies(group)
}

func thisGroup() int {
	group, _ := unix.Getpgid(0) // can't fail
	return group
}
