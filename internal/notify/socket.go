package notify

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Listen returns a Notifier with a socket of its own. The argument listen is an IP address with a port. If it has no IP
// address, the socket listens on all addresses. Port 0 means any free port. The argument announce is the address to
// which other processes send. If announce is empty, they send to the address in listen or, if the socket listens on all
// addresses, to the local address of the default route.
func Listen(listen, announce string) (*Notifier, error) {
	at, err := parse(listen)
	if err != nil {
		return nil, err
	}
	local := net.UDPAddrFromAddrPort(at)
	if at.Addr().IsUnspecified() && at.Addr().Is6() {
		local.IP = nil // which also works on a machine without IPv6
	}
	conn, err := net.ListenUDP("udp", local)
	if err != nil {
		return nil, fmt.Errorf("%w; choose an address of this machine and a free port, or port 0 for any free port", err)
	}
	bound := netip.AddrPortFrom(at.Addr(), conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	own, err := announced(bound, announce)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	n := New(own, elect.SystemClock{}, func(b []byte, to netip.AddrPort) { _, _ = conn.WriteToUDPAddrPort(b, to) })
	served := make(chan struct{})
	go func() {
		defer close(served)
		n.serve(conn)
	}()
	n.hangUp = func() {
		_ = conn.Close()
		<-served
	}
	return n, nil
}

// serve receives the messages of a socket until it is closed.
func (n *Notifier) serve(conn *net.UDPConn) {
	b := make([]byte, Size+1) // a longer message is cut to a size that is refused
	for {
		size, from, err := conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // usually about a single message
			time.Sleep(time.Millisecond) // an error that lasts must not keep a core busy
			continue
		}
		n.Receive(b[:size], from)
	}
}
