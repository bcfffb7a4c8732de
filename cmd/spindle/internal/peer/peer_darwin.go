package peer

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// identify asks the kernel for the process that connected. The end of a process can't be seen.
func (p *Peer) identify() error {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("the connection: %w", err)
	}
	var cred *unix.Xucred
	var dup int
	var noCred, noDup error
	err = raw.Control(func(fd uintptr) {
		cred, noCred = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		p.PID, _ = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		dup, noDup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = errors.Join(noCred, noDup)
	}
	if err != nil {
		return fmt.Errorf("the peer's credentials: %w", err)
	}
	p.UID = int(cred.Uid)
	p.socket = os.NewFile(uintptr(dup), "socket")
	p.Key = fmt.Sprintf("connection %p", p)
	return nil
}

// Describe knows nothing more.
func (p *Peer) Describe() {}

func awaitClosed(socket *os.File, closed chan<- struct{}) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	if raw.Read(hungUp) == nil {
		close(closed)
	}
}

func hungUp(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&unix.POLLHUP != 0
}

func hasClosed(socket *os.File) (closed bool) {
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { closed = hungUp(fd) })
	}
	return closed
}

func awaitExit(*os.File, chan<- struct{}) {}

// Unread returns 0: that can't be known.
func (p *Peer) Unread() int { return 0 }
