//go:build unix

package chaos

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy is the network between one candidate and Spanner. It is our own, and not toxiproxy, because
// that would be one dependency more, with a server to run, and because it holds bytes back in one
// direction only and delivers them late, which is how a commit arrives after its sender has died.
type proxy struct {
	ln       net.Listener
	to, from way // as the candidate sees it

	mu     sync.Mutex
	target string
	down   bool // connections are refused
	conns  map[net.Conn]struct{}
}

// way is one direction.
type way struct {
	mu    sync.Mutex
	gate  chan struct{} // closed: bytes pass; open: they are held back
	delay time.Duration // of every chunk
}

func newProxy(tb testing.TB, target string) *proxy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	p := &proxy{ln: ln, target: target, conns: map[net.Conn]struct{}{}}
	p.mend()
	var served sync.WaitGroup
	served.Go(func() { p.serve(&served) })
	tb.Cleanup(func() { _ = ln.Close(); p.mend(); p.cut(); served.Wait() })
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) serve(served *sync.WaitGroup) {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := p.dial()
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		served.Go(func() { p.copy(server, client, &p.to) })
		served.Go(func() { p.copy(client, server, &p.from) })
	}
}

func (p *proxy) dial() (net.Conn, error) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	return net.Dial("tcp", target)
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if !p.down {
			p.conns[c] = struct{}{}
		}
	}
	return !p.down
}

func (p *proxy) copy(to, from net.Conn, w *way) {
	defer p.drop(to, from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.pass()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// cut breaks all connections and refuses new ones until mend.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// mend undoes everything, and delivers what was held back.
func (p *proxy) mend() {
	p.to.set(0, true)
	p.from.set(0, true)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// repoint leads new connections elsewhere.
func (p *proxy) repoint(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// blackHole holds all bytes back until mend: nobody is told, nothing is lost.
func (w *way) blackHole() { w.set(0, false) }

func (w *way) slow(delay time.Duration) { w.set(delay, true) }

func (w *way) set(delay time.Duration, open bool) {
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

func (w *way) pass() {
	w.mu.Lock()
	gate, delay := w.gate, w.delay
	w.mu.Unlock()
	<-gate
	time.Sleep(delay)
}
