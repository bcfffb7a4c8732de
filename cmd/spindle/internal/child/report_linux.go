package child

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitReport waits until the kernel has a report about a process, but does not take it. Whoever takes a report of a stop
// later finds none if the process was continued in the meantime.
func awaitReport(process int) (r report) {
	for {
		r.err = unix.Waitid(unix.P_PID, process, nil, unix.WEXITED|unix.WSTOPPED|unix.WCONTINUED|unix.WNOWAIT, nil)
		if !errors.Is(r.err, syscall.EINTR) {
			return r
		}
	}
}
