//go:build unix

package main

import (
	"net"
	"sync"
)

// proxy stands between a command and the emulator, and can take the network away.
type proxy struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	gate  *sync.Cond
	shut  bool // bytes are kept back: nobody is told
	conns map[net.Conn]bool
}

func newProxy(target string) (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{ln: ln, target: target, conns: map[net.Conn]bool{}}
	p.gate = sync.NewCond(&p.mu)
	go p.serve()
	return p, nil
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) serve() {
	for {
		from, err := p.ln.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = from.Close()
			continue
		}
		p.mu.Lock()
		p.conns[from], p.conns[to] = true, true
		p.mu.Unlock()
		go p.copy(to, from)
		go p.copy(from, to)
	}
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.shut {
			p.gate.Wait()
		}
		p.mu.Unlock()
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// set keeps all bytes back, or lets them pass.
func (p *proxy) set(shut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	p.gate.Broadcast()
}

func (p *proxy) close() {
	_ = p.ln.Close()
	p.set(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}
