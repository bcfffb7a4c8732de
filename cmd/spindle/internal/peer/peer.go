// Package peer identifies the process at the other end of a Unix socket. It also tells whether the process has ended,
// whether its end of the stream is closed, and whether it reads.
//
//   - peer.go: the type Peer
//   - peer_linux.go: the implementation for Linux
//   - poll_linux.go: the goroutine that watches all peers
//   - peer_darwin.go, peer_other.go: the implementations for other systems, which can tell less
package peer

import (
	"net"
	"strconv"
	"strings"
	"sync"
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

	conn *net.UnixConn

	mu     sync.Mutex // guards the descriptors, whose numbers may be other files' after Close
	socket int        // a duplicate, used to wait for the end of the stream; -1 if there is none
	pidfd  int        // used to wait for the end of the process; -1 if there is none
	waits  []uint64   // the poller's waits for both

	canExit        bool // the system can tell when the process ends
	closed, exited chan struct{}
}

// Of returns the peer of a connection. The caller must close the peer.
func Of(c *net.UnixConn) (*Peer, error) {
	p := &Peer{conn: c, socket: -1, pidfd: -1, closed: make(chan struct{}), exited: make(chan struct{})}
	if err := p.identify(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Who returns what is known of the process so far.
func (p *Peer) Who() Identity { return p.Identity }

// Closed returns a channel that is closed once the peer's end of the stream is closed or shut down for writing. If
// several processes have the socket, all of them must have closed it. Watch must be called first.
func (p *Peer) Closed() <-chan struct{} { return p.closed }

// Exited returns a channel that is closed once the process that connected has ended. Watch must be called first. If
// CanExit returns false, the channel is never closed.
func (p *Peer) Exited() <-chan struct{} { return p.exited }

// CanExit reports whether the system can tell when the process ends.
func (p *Peer) CanExit() bool { return p.canExit }

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
