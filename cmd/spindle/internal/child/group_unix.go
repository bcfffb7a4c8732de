//go:build unix

package child

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported returns why programs can't be run on this system, or nil.
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

// inherited returns the file for a watchdog's replies. Processes that the watchdog starts don't inherit it, nor any other
// file that was handed to the watchdog.
func inherited() *os.File {
	const replies = 3
	closeOnExec(replies, 4, 5, 6, 7)
	_ = syscall.SetNonblock(replies, true) // for writeNow
	return os.NewFile(replies, "replies")
}

// inheritedFile returns the file with that number if this process inherited it, and programs will: this process opens its
// own files with close-on-exec. Otherwise it returns nil. Closing the result leaves the file open.
func inheritedFile(fd int) *os.File {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil
	}
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil // there are too many, so the start fails anyway
	}
	return os.NewFile(uintptr(again), "inherited")
}

func closeOnExec(fds ...int) {
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
}

// become makes this process that program, in the same environment. It returns only if that fails.
func become(path string, args []string) error {
	stillDieWithParent()
	return syscall.Exec(path, args, os.Environ())
}

// writeNow writes to a pipe without waiting for room in it.
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
		_ = syscall.Kill(-group, sig) // which fails if nothing is left of it
	}
}

// goOn continues a stopped process.
func goOn(p *os.Process) { _ = p.Signal(syscall.SIGCONT) } // which fails if it has ended

// killGroup also kills a group that is stopped.
func killGroup(group int) { signalGroup(group, syscall.SIGKILL) }

// groupGone reports whether it is certain that nothing runs in the group. The group was killed, so no fork adds to it.
func groupGone(group int) bool {
	return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) || onlyZombies(group)
}

func thisGroup() int {
	group, _ := unix.Getpgid(0) // which can't fail
	return group
}
