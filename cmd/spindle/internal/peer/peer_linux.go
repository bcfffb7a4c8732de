package peer

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// identify asks the kernel which process connected. The answer is the same after that process has passed the socket on.
func (p *Peer) identify() error {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("the connection: %w", err)
	}
	var cred *unix.Ucred
	var noCred, noDup, noPidfd error
	err = raw.Control(func(fd uintptr) {
		cred, noCred = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		p.socket, noDup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		if p.pidfd, noPidfd = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); noPidfd != nil {
			p.pidfd = -1
		}
	})
	if err == nil {
		err = errors.Join(noCred, noDup)
	}
	if err != nil {
		return fmt.Errorf("the peer's credentials: %w", err)
	}
	p.UID, p.PID = int(cred.Uid), int(cred.Pid)
	if err := p.found(noPidfd); err != nil {
		return fmt.Errorf("the peer's process: %w", err)
	}
	p.Key = p.keyOf()
	return nil
}

// found takes the kernel's answer to the request for the process's pidfd.
func (p *Peer) found(noPidfd error) error {
	switch {
	case noPidfd == nil:
		p.canExit = true
	case errors.Is(noPidfd, unix.ESRCH), errors.Is(noPidfd, unix.EINVAL): // the process has already ended and been reaped; Linux 6.16 still has a pidfd for it
		p.canExit = true
		close(p.exited)
	case errors.Is(noPidfd, unix.ENOPROTOOPT): // before Linux 6.5
		return p.openByID()
	default: // no descriptor is left
		return noPidfd
	}
	return nil
}

// openByID finds the process by its id, which works since Linux 5.3. If the process has ended meanwhile, a new process
// may have its id. In that case the end is reported late, but never early: the id was free, so the process has ended.
func (p *Peer) openByID() error {
	if p.PID == 0 { // it is in another pid namespace
		return nil
	}
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	switch {
	case err == nil:
		p.pidfd = pidfd
		p.canExit = true
	case errors.Is(err, unix.ESRCH):
		p.canExit = true
		close(p.exited)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return err
	} // otherwise the kernel can't tell: ENOSYS before Linux 5.3
	return nil
}

// ended reports whether the process has ended, so that another process may have its id. It returns false if the kernel
// can't tell.
func (p *Peer) ended() bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, 0)
	return n > 0
}

// keyOf returns a key that no other process has. Before Linux 6.9, it is made of the process's id and start time.
func (p *Peer) keyOf() string {
	if key := inodeOf(p.pidfd); key != "" {
		return key
	}
	if proc, err := procfs.NewProc(p.PID); err == nil && p.PID != 0 {
		if stat, err := proc.Stat(); err == nil && !p.ended() {
			return fmt.Sprintf("process %d of %d", p.PID, stat.Starttime)
		}
	}
	return ""
}

// pidfsMagic is the type of pidfs, the file system that gives each process its own inode since Linux 6.9.
const pidfsMagic = 0x50494446

// inodeOf returns a key that no other process since the last boot has, or "" if the kernel does not provide one.
func inodeOf(pidfd int) string {
	var fs unix.Statfs_t
	var stat unix.Stat_t
	if unix.Fstatfs(pidfd, &fs) != nil || fs.Type != pidfsMagic || unix.Fstat(pidfd, &stat) != nil {
		return ""
	}
	return fmt.Sprintf("process %d", stat.Ino)
}

// Describe sets Command and Unit from /proc, if the process has an id in our pid namespace and has not ended.
func (p *Peer) Describe() {
	command, unit := describe(p.PID)
	if !p.ended() { // otherwise another process may have been described
		p.Command, p.Unit = command, unit
	}
}

func describe(pid int) (command, unit string) {
	proc, err := procfs.NewProc(pid)
	if err != nil || pid == 0 {
		return "", ""
	}
	if name, err := proc.Comm(); err == nil {
		command = strings.ToValidUTF8(name, "")
	}
	groups, _ := proc.Cgroups()
	for _, g := range groups {
		if u := unitOf(g.Path); u != "" {
			unit = u
		}
	}
	return command, unit
}

var container = regexp.MustCompile(`[0-9a-f]{64}`)

// unitOf returns the systemd unit or the short container id in a control group's path.
func unitOf(cgroup string) string {
	if id := container.FindString(cgroup); id != "" {
		return id[:12]
	}
	for part := cgroup; len(part) > 1; part = path.Dir(part) {
		if base := path.Base(part); strings.HasSuffix(base, ".service") && !strings.HasPrefix(base, "user@") {
			return base
		}
	}
	return ""
}

// Watch starts to watch the process and its end of the stream.
func (p *Peer) Watch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	closed, err := await(p.socket, unix.EPOLLRDHUP, p.closed) // a read would first return data that the peer has sent
	p.waits = append(p.waits, closed)
	if err == nil && p.pidfd >= 0 {
		exited, failed := await(p.pidfd, unix.EPOLLIN, p.exited) // pidfd_open(2)
		p.waits, err = append(p.waits, exited), failed
	}
	if err != nil {
		return fmt.Errorf("the peer can't be watched: %w", err)
	}
	return nil
}

// HasClosed reports whether the peer's end of the stream is closed now.
func (p *Peer) HasClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	poll := []unix.PollFd{{Fd: int32(p.socket), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

// Close closes the peer's descriptors and stops watching it. Channels that are still open stay open.
func (p *Peer) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, number := range p.waits {
		forget(number)
	}
	for _, fd := range []int{p.socket, p.pidfd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	p.socket, p.pidfd = -1, -1
}

// Unread returns how much of the data written to the peer has not been read yet, in bytes of kernel memory.
func (p *Peer) Unread() int {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return 0
	}
	unread := 0
	_ = raw.Control(func(fd uintptr) { unread, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return unread
}
