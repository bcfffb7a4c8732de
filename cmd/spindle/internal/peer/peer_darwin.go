package peer

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// identify asks the kernel which process connected. macOS can't tell when that process ends.
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
	return nil
}

// Describe does nothing, because nothing more is known about the process.
func (p *Peer) Describe() {}

// lookEvery is how often a connection is checked.
const lookEvery = 50 * time.Millisecond

// Watch starts to watch the peer's end of the stream.
func (p *Peer) Watch() error {
	go func() {
		for !p.HasClosed() {
			time.Sleep(lookEvery)
		}
		close(p.closed)
	}()
	return nil
}

// HasClosed reports whether the peer's end of the stream is closed now, or Close has been called.
func (p *Peer) HasClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	poll := []unix.PollFd{{Fd: int32(p.socket)}}
	n, err := unix.Poll(poll, 0)
	return p.socket < 0 || err != nil || n > 0 && poll[0].Revents&(unix.POLLHUP|unix.POLLNVAL) != 0
}

// Close closes the peer's descriptor.
func (p *Peer) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.socket >= 0 {
		_ = unix.Close(p.socket)
	}
	p.socket = -1
}

// Unread returns 0, because macOS can't tell what has been read.
func (p *Peer) Unread() int { return 0 }
