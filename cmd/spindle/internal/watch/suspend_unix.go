//go:build unix

package watch

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// canSuspend reports whether this process was started by a shell that can resume it after Ctrl-Z. Without such a shell,
// as in "ssh -t host spindle watch", the kernel ignores SIGTSTP, and the screen would wait forever to be resumed.
func canSuspend() bool {
	session, err := unix.Getsid(0)
	if err != nil || signal.Ignored(syscall.SIGTSTP) {
		return false
	}
	parents, err := unix.Getsid(os.Getppid())
	return err == nil && parents == session && unix.Getpgrp() != session
}
