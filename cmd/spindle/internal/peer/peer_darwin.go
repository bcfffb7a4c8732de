package peer

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// identify asks the kernel for the process that connected. The end of a process can't be seen.
func (p *Peer) identify() error {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("the connection: %w", err)
	}
	var cred *unix.Xucred
	var noCred, noDup error
	err = raw.Control(func(fd uintptr) {
		cred, noCred = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		p.PID, _ = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		p.socket, noDup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = errors.Join(noCred, noDup)
	}
	if err != nil {
		return fmt.Errorf("the peer's credentials: %w", err)
	}
	p.UID = int(cred.Uid)
	p.Key = fmt.Sprintf("connection %p", p)
	return nil
}

// Describe knows nothing more.
func (p *Peer) Describe() {}

// lookEvery is how often a connection is looked at.
const lookEvery = 50 * time.Millisecond

// Watch begins to watch the peer's end of the stream.
func (p *Peer) Watch() error {
	go func() {
		for !p.HasClosed() {
			time.Sleep(lookEvery)
		}
		close(p.closed)
	}()
	return nil
}

// HasClosed reports whether the peer's end of the stream is closed at this moment, or Close was called.
func (p *Peer) HasClosed() bool {
	poll := []unix.PollFd{{Fd: int32(p.socket)}}
	n, err := unix.Poll(poll, 0)
	return err != nil || n > 0 && poll[0].Revents&(unix.POLLHUP|unix.POLLNVAL) != 0
}

// Close frees what it has.
func (p *Peer) Close() {
	if p.socket >= 0 {
		_ = unix.Close(p.socket)
	}
}

// Unread returns 0: that can't be known.
func (p *Peer) Unread() int { return 0 }
