package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Serve starts to answer the requests of programs on a Unix socket, and continues until the returned server is
// closed.
func (a *Agent) Serve(on net.Listener) *http.Server {
	s := &http.Server{
		Handler:           a.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    256 << 10, // enough for a set of 500 names with 500 bytes each; slow clients can tie up this much memory
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connection{}, c) },
		ConnState:         changed,
	}
	go func() { _ = s.Serve(listener{on, a}) }() // returns an error once the server is closed
	return s
}

// listener accepts every connection immediately. The method conn.Read enforces each program's limits.
type listener struct {
	net.Listener
	agent *Agent
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	key := ""
	if p, bad := l.agent.identify(c); bad == nil { // otherwise the handler says what is wrong
		key = p.Who().Key
		p.Close()
	}
	program, may := l.agent.programs.connect(key)
	return &conn{Conn: c, agent: l.agent, program: program, refused: !may}, nil
}

// conn is the connection of a program. Only a limited number of one program's requests may begin at a time; further
// requests wait. The beginning of a request lasts from its first bytes until its handler waits for something or has
// answered. Idle connections do not count, and neither does what a client sends while its handler waits.
type conn struct {
	net.Conn
	agent   *Agent
	program *program
	refused bool // the program has too many connections
	begins  atomic.Bool
	waits   atomic.Bool // the handler of its request waits, and net/http reads ahead to see whether the client goes
	closed  atomic.Bool
}

// Read implements net.Conn. It does not return any data until the request may begin.
func (c *conn) Read(b []byte) (int, error) {
	if c.refused {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // time for the client to write its request, because the write would otherwise fail
		_, _ = c.Conn.Read(b)
		_, _ = io.WriteString(c.Conn, tooManyConnections)
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if n > 0 && !c.begins.Load() && !c.waits.Load() { // in this order, because slow sets waits first
		c.program.begins <- struct{}{}
		c.begins.Store(true)
	}
	return n, err
}

const tooManyConnections = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n" +
	`{"code":"too-many","title":"Too Many Requests","status":429,"detail":"this program has too many connections to the agent; a program may have about as many as --max-holds"}` + "\n"

// pass lets another request begin, because the request of this connection has begun.
func (c *conn) pass() {
	if c.begins.Swap(false) {
		<-c.program.begins
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.pass()
	if !c.closed.Swap(true) {
		c.agent.programs.hangUp(c.program)
	}
	return c.Conn.Close()
}

// changed is called when a connection changes its state. A request can be beginning only on a connection that is new or
// active.
func changed(c net.Conn, to http.ConnState) {
	if to != http.StateNew && to != http.StateActive {
		c.(*conn).pass()
		c.(*conn).waits.Store(false)
	}
}

// connection is the context key for the connection of a request.
type connection struct{}

// socketOf returns the connection of a request, or nil if it did not come over the agent's socket.
func socketOf(r *http.Request) net.Conn {
	if c, ok := r.Context().Value(connection{}).(*conn); ok {
		return c.Conn
	}
	return nil
}

// slow is called before a handler waits for something, so that other requests can begin.
func slow(r *http.Request) {
	if c, ok := r.Context().Value(connection{}).(*conn); ok { // not a probe over TCP
		c.waits.Store(true)
		c.pass()
	}
}
