// Package peer identifies the process at the other end of a Unix socket. It also reports whether that process has
// closed its end of the stream and, on Linux, whether the process has ended and how much data it has not read yet. On
// systems other than Linux and macOS, Of returns an error.
package peer

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Identity says which process a peer is.
type Identity struct {
	UID     int
	PID     int    // 0 if the process is in another pid namespace and has no id in ours
	Command string // the name of the process, or ""; set by Describe
	Unit    string // its systemd unit or container, or ""; set by Describe
	Key     string // differs between processes, and is the same for all connections of one process; "" if the system can't tell
}

// A Peer is the process that connected to a Unix socket.
type Peer struct {
	Identity
	socket  *os.File // a duplicate, which does not end with the connection
	process *os.File // becomes readable when the process ends; nil if the system can't tell
	exited  bool     // the process had ended before it was identified
}

// Of returns the peer of a connection. The caller must close the peer.
func Of(c *net.UnixConn) (*Peer, error) {
	socket, err := c.File()
	if err != nil {
		return nil, fmt.Errorf("the connection: %w", err)
	}
	p := &Peer{socket: socket}
	if err := p.identify(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Who returns what is known so far about the process.
func (p *Peer) Who() Identity { return p.Identity }

// Watch calls the given functions from other goroutines. It calls closed once the peer's end of the stream has been
// shut down for writing, or once all processes that have the socket have closed it. If the system can tell, it calls
// exited once the process that connected has ended. Close ends the watch, but a call that was already due may still
// follow.
func (p *Peer) Watch(closed, exited func()) error {
	for _, file := range []*os.File{p.socket, p.process} {
		if file == nil {
			continue
		}
		if err := file.SetReadDeadline(time.Time{}); err != nil { // the runtime can't wait for it
			return fmt.Errorf("the peer can't be watched: %w", err)
		}
	}
	go await(p.socket, hasClosed, closed)
	switch {
	case p.exited:
		go exited()
	case p.process != nil:
		go await(p.process, hasEnded, exited)
	}
	return nil
}

// HasClosed reports whether the peer's end of the stream is now closed or shut down for writing.
func (p *Peer) HasClosed() bool {
	closed := false
	_ = with(p.socket, func(fd int) { closed = hasClosed(fd) })
	return closed
}

// Unread returns how much of the data written to the peer has not been read yet, in bytes of kernel memory. The result is
// 0 if the system can't tell.
func (p *Peer) Unread() int {
	bytes := 0
	_ = with(p.socket, func(fd int) { bytes = unread(fd) })
	return bytes
}

// Close stops watching the peer.
func (p *Peer) Close() {
	_ = p.socket.Close()
	if p.process != nil {
		_ = p.process.Close()
	}
}

// with calls f with the descriptor of a file, which stays open meanwhile. It returns an error if the file is closed.
func with(file *os.File, f func(fd int)) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

// String returns a description of the process for people.
func (i Identity) String() string {
	s := i.Command
	if i.PID != 0 {
		s += "[" + strconv.Itoa(i.PID) + "]"
	}
	if i.Unit != "" {
		s = strings.TrimSpace(s + " in " + i.Unit)
	}
	if s == "" {
		return "a process in another pid namespace"
	}
	return s
}
