// Package peer identifies the process at the other end of a Unix socket, and watches whether it has ended, whether its end of
// the stream is closed, and whether it reads.
//
//   - peer.go: what is known of a peer
//   - peer_linux.go: how Linux says it; poll_linux.go: one goroutine that waits for all peers
//   - peer_darwin.go, peer_other.go: other systems, which say less
package peer

import (
	"net"
	"strconv"
	"strings"
)

// A Peer is the process that connected to a Unix socket.
type Peer struct {
	UID     int
	PID     int    // 0: the process is in another pid namespace, and has no number here
	Command string // its name, or "": see Describe
	Unit    string // its systemd unit or container, or "": see Describe
	Key     string // is different for different processes, and the same for all connections of one process if that can be known

	conn   *net.UnixConn
	socket int // a duplicate, to wait for the end of the stream; -1: none
	pidfd  int // of the process, to wait for its end; -1: none

	canExit        bool // the end of the process can be seen
	closed, exited chan struct{}
}

// Of returns the peer of a connection. It must be closed.
func Of(c *net.UnixConn) (*Peer, error) {
	p := &Peer{conn: c, socket: -1, pidfd: -1, closed: make(chan struct{}), exited: make(chan struct{})}
	if err := p.identify(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Closed returns a channel that is closed, after Watch, once the peer's end of the stream is closed, or shut down for
// writing. All processes that have that socket must have closed it.
func (p *Peer) Closed() <-chan struct{} { return p.closed }

// Exited returns a channel that is closed, after Watch, once the process that connected has ended. If that can't be known, it
// never is: see CanExit.
func (p *Peer) Exited() <-chan struct{} { return p.exited }

// CanExit reports whether the end of the process can be seen.
func (p *Peer) CanExit() bool { return p.canExit }

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
