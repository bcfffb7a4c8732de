package peer

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// identify asks the kernel for the process that connected. It is that process even if it has passed the socket on.
func (p *Peer) identify() error {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("the connection: %w", err)
	}
	var cred *unix.Ucred
	var dup, pidfd int
	var noCred, noDup, noPidfd error
	err = raw.Control(func(fd uintptr) {
		cred, noCred = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		dup, noDup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		pidfd, noPidfd = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	})
	if err == nil {
		err = errors.Join(noCred, noDup)
	}
	if err != nil {
		return fmt.Errorf("the peer's credentials: %w", err)
	}
	p.UID, p.PID = int(cred.Uid), int(cred.Pid)
	p.socket = os.NewFile(uintptr(dup), "socket")
	switch {
	case noPidfd == nil:
		_ = unix.SetNonblock(pidfd, true) // so that the runtime's poller waits for it
		p.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
		p.Key = inodeOf(pidfd)
		p.canExit = true
	case errors.Is(noPidfd, unix.ESRCH), errors.Is(noPidfd, unix.EINVAL): // it has ended, and was waited for
		p.canExit = true
		close(p.exited)
	} // otherwise the kernel can't tell: ENOPROTOOPT before Linux 6.5
	if p.Key == "" {
		p.Key = p.keyOf()
	}
	return nil
}

// keyOf is for kernels that give a process no inode.
func (p *Peer) keyOf() string {
	if proc, err := procfs.NewProc(p.PID); err == nil && p.PID != 0 {
		if stat, err := proc.Stat(); err == nil {
			return fmt.Sprintf("process %d of %d", p.PID, stat.Starttime)
		}
	}
	return fmt.Sprintf("connection %p", p)
}

// pidfsMagic is the type of the file system in which each process has an inode of its own: since Linux 6.9.
const pidfsMagic = 0x50494446

// inodeOf returns what distinguishes the process from all others of this boot, or "" if the kernel has nothing.
func inodeOf(pidfd int) string {
	var fs unix.Statfs_t
	var stat unix.Stat_t
	if unix.Fstatfs(pidfd, &fs) != nil || fs.Type != pidfsMagic || unix.Fstat(pidfd, &stat) != nil {
		return ""
	}
	return fmt.Sprintf("process %d", stat.Ino)
}

// Describe fills in what /proc says of the process, if it has a number here.
func (p *Peer) Describe() {
	if p.PID == 0 {
		return
	}
	proc, err := procfs.NewProc(p.PID)
	if err != nil {
		return
	}
	if name, err := proc.Comm(); err == nil {
		p.Command = strings.ToValidUTF8(name, "")
	}
	if groups, err := proc.Cgroups(); err == nil {
		for _, g := range groups {
			if unit := unitOf(g.Path); unit != "" {
				p.Unit = unit
			}
		}
	}
}

var container = regexp.MustCompile(`[0-9a-f]{64}`)

// unitOf returns the systemd unit, or the short id of the container, that a control group's path names.
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

// awaitClosed polls, because a read would wait behind what the peer has sent and nobody reads.
func awaitClosed(socket *os.File, closed chan<- struct{}) {
	await(socket, unix.POLLRDHUP, unix.POLLRDHUP|unix.POLLHUP, closed)
}

// awaitExit waits until the pidfd is readable: pidfd_open(2).
func awaitExit(pidfd *os.File, exited chan<- struct{}) {
	await(pidfd, unix.POLLIN, unix.POLLIN|unix.POLLHUP, exited)
}

// await closes happened once poll reports one of the events. It returns if the file is closed.
func await(f *os.File, asked, events int16, happened chan<- struct{}) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	if raw.Read(func(fd uintptr) bool { return polled(fd, asked, events) }) == nil {
		close(happened)
	}
}

func polled(fd uintptr, asked, events int16) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: asked}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&events != 0
}

func hasClosed(socket *os.File) (closed bool) {
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { closed = polled(fd, unix.POLLRDHUP, unix.POLLRDHUP|unix.POLLHUP) })
	}
	return closed
}

// Unread returns how much of what was written to the peer it has not read yet, in bytes of the kernel's memory.
func (p *Peer) Unread() int {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return 0
	}
	unread := 0
	_ = raw.Control(func(fd uintptr) { unread, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return unread
}
