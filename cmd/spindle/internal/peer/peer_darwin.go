package peer

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// identify asks the kernel which process connected. macOS can't tell when that process ends.
func (p *Peer) identify() error {
	var cred *unix.Xucred
	var noCred error
	err := with(p.socket, func(fd int) {
		cred, noCred = unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		p.PID, _ = unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if err = errors.Join(err, noCred); err != nil {
		return fmt.Errorf("the peer's credentials: %w", err)
	}
	p.UID = int(cred.Uid)
	return nil
}

// Describe does nothing, because nothing more is known about the process.
func (p *Peer) Describe() {}

// lookEvery is how often a connection is checked.
const lookEvery = 50 * time.Millisecond

// await calls then once cond is true of the file, unless the file is closed first.
func await(file *os.File, cond func(fd int) bool, then func()) {
	for is := false; !is; time.Sleep(lookEvery) {
		if with(file, func(fd int) { is = cond(fd) }) != nil {
			return
		}
	}
	then()
}

func hasClosed(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLHUP}} // without an event, macOS does not watch a socket
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&(unix.POLLHUP|unix.POLLNVAL) != 0
}

func hasEnded(int) bool { return false }

func unread(int) int { return 0 }
