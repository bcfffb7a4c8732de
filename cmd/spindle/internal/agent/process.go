package agent

import (
	"errors"
	"net"
	"net/http"
	"syscall"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
)

// process is the process that sent a request, and the evidence that it can or can't act any more. It is the third thing
// that a simulation replaces, besides time and the lock table.
type process interface {
	Describe() // completes what Who returns
	Who() peer.Identity
	Watch() error // must be called before Closed and Exited
	Closed() <-chan struct{}
	Exited() <-chan struct{}
	HasClosed() bool
	Unread() int
	Close()
}

// identify returns the process at the other end of a connection.
func identify(c net.Conn) (process, *problem) {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return nil, wrong(http.StatusForbidden, "no-socket", "programs must connect over a Unix socket")
	}
	p, err := peer.Of(socket)
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return nil, wrong(http.StatusServiceUnavailable, "unavailable", "%v: this agent needs three file descriptors for each hold: raise the limit (ulimit -n, LimitNOFILE=), or lower --max-holds", err)
	case err != nil:
		return nil, wrong(http.StatusForbidden, "unknown-peer", "%v", err)
	}
	return p, nil
}
