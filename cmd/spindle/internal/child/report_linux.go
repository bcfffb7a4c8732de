package child

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitReport waits until the kernel has a report about a process, and leaves the report in the kernel. If the report is
// about a stop, and the process is continued before the report is taken, the kernel drops the report.
func awaitReport(process int) (r report) {
	for {
		r.err = unix.Waitid(unix.P_PID, process, nil, unix.WEXITED|unix.WSTOPPED|unix.WCONTINUED|unix.WNOWAIT, nil)
		if !errors.Is(r.err, syscall.EINTR) {
			return r
		}
	}
}
