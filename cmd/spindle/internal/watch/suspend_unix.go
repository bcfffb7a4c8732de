//go:build unix

package watch

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// canSuspend reports whether a shell would notice that this process has stopped, and could resume it. Without such a
// shell, as in "ssh -t host spindle watch", the kernel drops SIGTSTP, and the screen would wait forever to be resumed.
func canSuspend() bool {
	session, err := unix.Getsid(0)
	if err != nil || signal.Ignored(syscall.SIGTSTP) {
		return false
	}
	parents, err := unix.Getsid(os.Getppid())
	return err == nil && parents == session && unix.Getpgrp() != session
}
