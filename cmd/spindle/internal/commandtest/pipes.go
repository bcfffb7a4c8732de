package commandtest

import (
	"net"
	"sync"
)

// Pipes is a net.Listener for virtual time. It accepts the connections that a test sends to Connect.
type Pipes struct {
	Connect chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// NewPipes returns a listener that keeps some connections until it accepts them.
func NewPipes() *Pipes {
	return &Pipes{Connect: make(chan net.Conn, 10_000), closed: make(chan struct{})}
}

// Dial connects a client. A pipe has no buffer: a client can't write what the server does not read, and conversely.
func (p *Pipes) Dial() net.Conn {
	client, server := net.Pipe()
	p.Connect <- server
	return client
}

// Accept implements net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.Connect:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
