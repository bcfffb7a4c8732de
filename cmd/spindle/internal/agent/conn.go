package agent

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// listener accepts connections at once, whatever the programs do.
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
	return &conn{Conn: c, agent: l.agent}, nil
}

// conn is the connection of a program. Its requests begin in turn with those of other programs: from its first bytes until
// its handler waits for something or has answered, a request has a place. Connections that are idle have none.
type conn struct {
	net.Conn
	agent  *Agent
	known  bool // the program has been identified, and the connection counts
	key    string
	place  atomic.Pointer[place]
	closed atomic.Bool
}

// Read implements net.Conn. It returns what was read once the program's turn has come.
func (c *conn) Read(b []byte) (int, error) {
	if !c.known && !c.meet() {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // for the request, which would otherwise fail when it is written
		_, _ = c.Conn.Read(b)
		_, _ = io.WriteString(c.Conn, tooManyConnections)
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if n > 0 && c.place.Load() == nil {
		p := c.agent.beginnings.take(c.key)
		<-p.turn
		c.place.Store(p)
	}
	return n, err
}

const tooManyConnections = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n" +
	`{"code":"too-many","title":"Too Many Requests","status":429,"detail":"this program has too many connections to the agent: one program may have as many as --max-holds"}` + "\n"

// meet identifies the program, and reports whether it may have another connection.
func (c *conn) meet() bool {
	c.known = true
	if p, bad := c.agent.identify(c.Conn); bad == nil { // otherwise the handler says what is wrong
		c.key = p.Who().Key
		p.Close()
	}
	return c.agent.programs.connected(c.key, 1)
}

// pass makes way for other requests.
func (c *conn) pass() {
	if p := c.place.Swap(nil); p != nil {
		p.leave()
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.known && !c.closed.Swap(true) {
		c.agent.programs.connected(c.key, -1)
	}
	c.pass()
	return c.Conn.Close()
}

// changed is called when the server has answered a request.
func changed(c net.Conn, to http.ConnState) {
	if to != http.StateNew && to != http.StateActive {
		c.(*conn).pass()
	}
}
