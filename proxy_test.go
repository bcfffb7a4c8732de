package spindle_test

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a client and the emulator, and can take the network away.
type proxy struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	gate  chan struct{} // closed: bytes pass; open: they are kept back
	down  bool          // connections are refused
	conns map[net.Conn]struct{}
}

func newProxy(tb testing.TB, target string) *proxy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	p := &proxy{ln: ln, target: target, gate: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(p.gate)
	var served sync.WaitGroup
	served.Add(1)
	go func() { defer served.Done(); p.serve(&served) }()
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
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			served.Add(1)
			go func() { defer served.Done(); p.copy(way[0], way[1]) }()
		}
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if c == nil || p.down {
			return false
		}
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *proxy) copy(to, from net.Conn) {
	defer p.drop(to, from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		<-gate
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

// blackHole keeps all bytes back until mend: nobody is told, nothing is lost.
func (p *proxy) blackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
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

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}
