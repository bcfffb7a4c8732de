package agent

import (
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
	"github.com/spindle-lock/spindle/internal/loop"
)

// process is the process that sent a request. Its methods tell whether the process can still act. Simulations replace
// it, the clock and the lock table.
type process interface {
	Describe() // completes what Who returns
	Who() peer.Identity
	Watch(closed, exited func()) error
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
		return nil, wrong(http.StatusServiceUnavailable, "unavailable", "%v; this agent needs three file descriptors for each hold, so raise the limit (ulimit -n, LimitNOFILE=) or lower --max-holds", err)
	case err != nil:
		return nil, wrong(http.StatusForbidden, "unknown-peer", "%v", err)
	}
	return p, nil
}

// attention tracks whether a program reads its lines. If the request set stall=, the program loses its lock once it has
// left lines unread for that long. Without stall=, a program that dumps core keeps its lock until the dump is written.
type attention struct {
	loop.Stall     // progress means reading something, or having nothing to read
	unread     int // at the last check, in bytes
}

// stalled updates a with the number of unread bytes, and reports whether the program has stalled.
func (a *attention) stalled(unread int) bool {
	if unread == 0 || unread < a.unread {
		a.Progress()
	}
	a.unread = unread
	return a.Limit > 0 && a.Idle() >= a.Limit
}

// every returns how long to wait between checks.
func (a *attention) every() time.Duration {
	if a.Limit == 0 {
		return time.Hour
	}
	return a.Limit / 8
}
