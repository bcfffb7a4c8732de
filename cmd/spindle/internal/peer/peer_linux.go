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

// identify asks the kernel which process connected. The answer does not change if that process passes the socket on.
func (p *Peer) identify() error {
	var cred *unix.Ucred
	var pidfd int
	var noCred, noPidfd error
	err := with(p.socket, func(fd int) {
		cred, noCred = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		pidfd, noPidfd = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	})
	if err = errors.Join(err, noCred); err != nil {
		return fmt.Errorf("the peer's credentials: %w", err)
	}
	p.UID, p.PID = int(cred.Uid), int(cred.Pid)
	if err := p.found(pidfd, noPidfd); err != nil {
		return fmt.Errorf("the peer's process: %w", err)
	}
	p.Key = p.keyOf()
	return nil
}

// found handles the kernel's answer to the request for the peer's pidfd. If the kernel does not support this request
// (before Linux 6.5), found opens a pidfd for the process's id. If the id already belongs to a new process, the end of
// the peer's process is reported late, but never early.
func (p *Peer) found(pidfd int, err error) error {
	if errors.Is(err, unix.ENOPROTOOPT) && p.PID != 0 {
		pidfd, err = unix.PidfdOpen(p.PID, 0)
	}
	switch {
	case err == nil:
		_ = unix.SetNonblock(pidfd, true) // so that the runtime can wait for it
		p.process = os.NewFile(uintptr(pidfd), "process")
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL): // the process has ended and been reaped; since Linux 6.16, the kernel returns a pidfd even then
		p.exited = true
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return err
	} // otherwise the kernel can't tell: before Linux 5.3, or before 6.5 if the process is in another pid namespace
	return nil
}

// ended reports whether the process has ended. If it has, another process may already have its id. If the kernel can't
// tell, ended returns false.
func (p *Peer) ended() bool {
	ended := p.exited
	if p.process != nil {
		_ = with(p.process, func(fd int) { ended = hasEnded(fd) })
	}
	return ended
}

// keyOf returns a key that no other process has, or "" if there is none. Before Linux 6.9, the key consists of the
// process's id and start time.
func (p *Peer) keyOf() (key string) {
	if p.process != nil {
		_ = with(p.process, func(fd int) { key = inodeOf(fd) })
	}
	if proc, err := procfs.NewProc(p.PID); key == "" && err == nil && p.PID != 0 {
		if stat, err := proc.Stat(); err == nil && !p.ended() {
			key = fmt.Sprintf("process %d of %d", p.PID, stat.Starttime)
		}
	}
	return key
}

// pidfsMagic is the type of pidfs, the file system that, since Linux 6.9, has given each process its own inode.
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
	return command, unitOf(groups)
}

var container = regexp.MustCompile(`[0-9a-f]{64}`)

// unitOf returns the systemd unit or the short container id in the first control group that has one. On cgroup v1, the
// last group can be the container runtime's.
func unitOf(groups []procfs.Cgroup) string {
	for _, g := range groups {
		if id := container.FindString(g.Path); id != "" {
			return id[:12]
		}
		for part := g.Path; len(part) > 1; part = path.Dir(part) {
			if base := path.Base(part); strings.HasSuffix(base, ".service") && !strings.HasPrefix(base, "user@") {
				return base
			}
		}
	}
	return ""
}

// await calls the given function once the condition holds for the file, unless the file is closed first. The runtime
// wakes await after each event, but does not say which event it was.
func await(file *os.File, cond func(fd int) bool, then func()) {
	raw, err := file.SyscallConn()
	if err == nil && raw.Read(func(fd uintptr) bool { return cond(int(fd)) }) == nil {
		then()
	}
}

// hasClosed reports whether the other end of a stream is closed. A read can't tell before all data has been read.
func hasClosed(fd int) bool { return polled(fd, unix.POLLRDHUP)&(unix.POLLRDHUP|unix.POLLHUP) != 0 }

// hasEnded reports whether the process of a pidfd has ended. Only POLLIN shows this, not POLLHUP; see pidfd_open(2).
func hasEnded(fd int) bool { return polled(fd, unix.POLLIN)&unix.POLLIN != 0 }

func polled(fd int, events int16) int16 {
	poll := []unix.PollFd{{Fd: int32(fd), Events: events}}
	if n, err := unix.Poll(poll, 0); err != nil || n < 1 {
		return 0
	}
	return poll[0].Revents
}

func unread(fd int) int {
	bytes, _ := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	return bytes
}
