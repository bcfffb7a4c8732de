// Package peer knows the process at the other end of a Unix socket: which process it is, whether it has ended, whether its
// end of the stream is closed, and whether it reads.
//
//   - peer.go: what is known of a peer
//   - peer_linux.go: by SO_PEERPIDFD, /proc, poll and SIOCOUTQ; peer_darwin.go, peer_other.go: with less
package peer

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
)

// A Peer is the process that connected to a Unix socket.
type Peer struct {
	UID     int
	PID     int    // 0: the process is in another pid namespace, and has no number here
	Command string // its name, or "": see Describe
	Unit    string // its systemd unit or container, or "": see Describe
	Key     string // is different for different processes, and the same for all connections of one process if that can be known

	conn   *net.UnixConn
	socket *os.File // of the connection, to wait for its end
	pidfd  *os.File // of the process, to wait for its end

	canExit        bool // the end of the process can be seen
	watch          sync.Once
	closed, exited chan struct{}
}

// Of returns the peer of a connection. It must be closed.
func Of(c *net.UnixConn) (*Peer, error) {
	p := &Peer{conn: c, closed: make(chan struct{}), exited: make(chan struct{})}
	if err := p.identify(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Closed returns a channel that is closed once the peer's end of the stream is closed, or shut down for writing. All
// processes that have that socket must have closed it.
func (p *Peer) Closed() <-chan struct{} {
	p.watch.Do(p.start)
	return p.closed
}

// Exited returns a channel that is closed once the process that connected has ended. If that can't be known, it never is:
// see CanExit.
func (p *Peer) Exited() <-chan struct{} {
	p.watch.Do(p.start)
	return p.exited
}

// HasClosed reports whether the peer's end of the stream is closed at this moment.
func (p *Peer) HasClosed() bool { return p.socket != nil && hasClosed(p.socket) }

// CanExit reports whether the end of the process can be seen.
func (p *Peer) CanExit() bool { return p.canExit }

func (p *Peer) start() {
	if p.socket != nil {
		go awaitClosed(p.socket, p.closed)
	}
	if p.pidfd != nil {
		go awaitExit(p.pidfd, p.exited)
	}
}

// Close frees what it has. The channels are closed after that only if they were before.
func (p *Peer) Close() {
	for _, f := range []*os.File{p.socket, p.pidfd} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// String describes the process to a person.
func (p *Peer) String() string {
	s := p.Command
	if p.PID != 0 {
		s += "[" + strconv.Itoa(p.PID) + "]"
	}
	if p.Unit != "" {
		s = strings.TrimSpace(s + " in " + p.Unit)
	}
	if s == "" {
		return "a process in another pid namespace"
	}
	return s
}
