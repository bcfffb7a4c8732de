// Package network provides networks that tests can break: connections between a candidate and Spanner, and datagrams
// between processes.
package network

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Link forwards connections to a server until a test breaks it. A test can also delay the bytes in one direction only,
// so that a commit arrives after its sender has died. Toxiproxy could do this too, but would add a dependency and a
// server to run.
type Link struct {
	To, From Way // from the client's point of view

	ln     net.Listener
	served sync.WaitGroup

	mu     sync.Mutex
	target string
	down   bool                      // new connections are refused
	conns  map[net.Conn]*atomic.Bool // whether it was forgotten; both ends share the value
}

// Way is one direction of a Link.
type Way struct {
	mu    sync.Mutex
	gate  chan struct{} // bytes are held back until this channel is closed
	delay time.Duration // the delay of each chunk
}

// NewLink returns a Link that listens on a free port of this machine and forwards to target. The caller must close it.
func NewLink(target string) (*Link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{ln: ln, target: target, conns: map[net.Conn]*atomic.Bool{}}
	l.Mend()
	l.served.Go(l.serve)
	return l, nil
}

// Close closes all connections, and returns once no goroutine of the Link is running.
func (l *Link) Close() {
	_ = l.ln.Close()
	l.Mend()
	l.Cut()
	l.served.Wait()
}

// Addr returns the host:port that clients connect to.
func (l *Link) Addr() string { return l.ln.Addr().String() }

func (l *Link) serve() {
	for {
		client, err := l.ln.Accept()
		if err != nil {
			return
		}
		server, err := l.dial()
		forgotten := &atomic.Bool{}
		if err != nil || !l.keep(forgotten, client, server) {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		l.served.Go(func() { l.copy(server, client, &l.To, forgotten) })
		l.served.Go(func() { l.copy(client, server, &l.From, forgotten) })
	}
}

func (l *Link) dial() (net.Conn, error) {
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	return net.Dial("tcp", target)
}

func (l *Link) keep(forgotten *atomic.Bool, conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if !l.down {
			l.conns[c] = forgotten
		}
	}
	return !l.down
}

func (l *Link) copy(to, from net.Conn, w *Way, forgotten *atomic.Bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.pass()
		if forgotten.Load() {
			_, _ = io.Copy(io.Discard, from)
			l.drop(from) // the other end is not told
			return
		}
		if n > 0 {
			if _, err = to.Write(buf[:n]); err == nil {
				continue
			}
		}
		if err != nil {
			l.drop(to, from)
			return
		}
	}
}

func (l *Link) drop(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(l.conns, c)
	}
}

// Cut breaks all connections, and refuses new ones until Mend is called.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for c := range l.conns {
		_ = c.Close()
	}
}

// Mend undoes Cut, BlackHole and Slow, and delivers the bytes that were held back.
func (l *Link) Mend() {
	l.To.set(0, true)
	l.From.set(0, true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// Forget makes the current connections drop all further bytes without closing, as if a NAT or a firewall had forgotten
// these connections. New connections work.
func (l *Link) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, forgotten := range l.conns {
		forgotten.Store(true)
	}
}

// Repoint makes the Link forward new connections to a different server.
func (l *Link) Repoint(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// BlackHole holds back all bytes in both directions until Mend is called. Neither end is told, and no bytes are lost.
func (l *Link) BlackHole() {
	l.To.BlackHole()
	l.From.BlackHole()
}

// BlackHole holds back all bytes until Mend is called.
func (w *Way) BlackHole() { w.set(0, false) }

// Slow delays each chunk until Mend is called.
func (w *Way) Slow(delay time.Duration) { w.set(delay, true) }

func (w *Way) set(delay time.Duration, open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = delay
	if w.gate != nil {
		select {
		case <-w.gate:
		default:
			close(w.gate)
		}
	}
	w.gate = make(chan struct{})
	if open {
		close(w.gate)
	}
}

func (w *Way) pass() {
	w.mu.Lock()
	gate, delay := w.gate, w.delay
	w.mu.Unlock()
	<-gate
	time.Sleep(delay)
}
