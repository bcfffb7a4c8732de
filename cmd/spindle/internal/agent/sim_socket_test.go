package agent

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
)

// This file models what the kernel does: Unix sockets, and processes that end. A process has one end of a socket, which
// its children can share. The other end is the agent's.

// roomFor is how many bytes a socket holds that have not been read. It is small, so that slow readers block the agent.
const roomFor = 2048

var errGone = errors.New("the other end is closed")

// socket is one connection.
type socket struct {
	agent *agentProcess
	of    *kernelProcess // the process that connected

	mu           sync.Mutex
	changed      *sync.Cond
	up, down     []byte // written by the program, or by the agent, and not read yet
	shut, closed bool   // the program's end: for writing, or altogether
	gone         bool   // the agent's end is closed
	limits       [2]time.Time
	watchers     []chan struct{}
}

func newSocket(a *agentProcess, of *kernelProcess) *socket {
	s := &socket{agent: a, of: of}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *socket) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.shut || s.closed {
		for _, w := range s.watchers {
			close(w)
		}
		s.watchers = nil
	}
	s.changed.Broadcast()
}

// await waits until ready returns true, the time limit passes, or the reader or writer can't go on.
func (s *socket) await(limit int, ready func() bool) error {
	for !ready() {
		if at := s.limits[limit]; !at.IsZero() && !at.After(time.Now()) {
			return os.ErrDeadlineExceeded
		}
		s.changed.Wait()
	}
	return nil
}

// The program's end.

func (s *socket) closes()    { s.change(func() { s.closed = true }) }
func (s *socket) shutsDown() { s.change(func() { s.shut = true }) }

func (s *socket) hasClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || s.shut
}

// Write writes a request.
func (s *socket) Write(b []byte) (int, error) {
	s.change(func() { s.up = append(s.up, b...) })
	return len(b), nil
}

// Read reads what the agent has written.
func (s *socket) Read(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.down) == 0 && !s.gone && !s.closed {
		s.changed.Wait()
	}
	if s.closed || len(s.down) == 0 {
		return 0, io.EOF
	}
	n = copy(b, s.down)
	s.down = s.down[n:]
	s.changed.Broadcast()
	return n, nil
}

// agentEnd is the agent's end. It is a net.Conn.
type agentEnd struct{ *socket }

func (e agentEnd) Read(b []byte) (n int, err error) {
	s := e.socket
	s.agent.gate("socket")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.await(0, func() bool { return len(s.up) > 0 || s.shut || s.closed || s.gone }); err != nil {
		return 0, err
	}
	if s.gone || len(s.up) == 0 {
		return 0, io.EOF
	}
	n = copy(b, s.up)
	s.up = s.up[n:]
	return n, nil
}

func (e agentEnd) Write(b []byte) (n int, err error) {
	s := e.socket
	for n < len(b) {
		s.agent.gate("socket")
		s.mu.Lock()
		err := s.await(1, func() bool { return len(s.down) < roomFor || s.closed || s.gone })
		if err == nil && (s.closed || s.gone) {
			err = errGone
		}
		if err != nil {
			s.mu.Unlock()
			return n, err
		}
		part := min(len(b)-n, roomFor-len(s.down))
		s.down = append(s.down, b[n:n+part]...)
		n += part
		s.changed.Broadcast()
		s.mu.Unlock()
	}
	return n, nil
}

func (e agentEnd) Close() error {
	e.change(func() { e.gone = true })
	return nil
}

func (e agentEnd) limit(which int, at time.Time) error {
	e.change(func() { e.limits[which] = at })
	if left := time.Until(at); left > 0 {
		time.AfterFunc(left, func() { e.change(func() {}) })
	}
	return nil
}

func (e agentEnd) SetReadDeadline(t time.Time) error  { return e.limit(0, t) }
func (e agentEnd) SetWriteDeadline(t time.Time) error { return e.limit(1, t) }
func (e agentEnd) SetDeadline(t time.Time) error {
	return errors.Join(e.limit(0, t), e.limit(1, t))
}
func (e agentEnd) LocalAddr() net.Addr  { return &net.UnixAddr{Name: "agent"} }
func (e agentEnd) RemoteAddr() net.Addr { return &net.UnixAddr{} }

// kernelProcess is a process as the kernel knows it.
type kernelProcess struct {
	key string
	uid int

	mu       sync.Mutex
	ended    bool
	watchers []chan struct{}
}

func (k *kernelProcess) ends() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	for _, w := range k.watchers {
		close(w)
	}
	k.watchers = nil
}

func (k *kernelProcess) hasEnded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// evidence is what the kernel tells an agent about the other end of a socket. It implements process.
type evidence struct {
	*socket
	closed, exited chan struct{}
}

func (e *evidence) Describe() {}

func (e *evidence) Who() peer.Identity { return peer.Identity{UID: e.of.uid, PID: 1, Key: e.of.key} }

func (e *evidence) Watch() error {
	if e.agent.host.isFull("watch") {
		return syscall.EMFILE
	}
	e.change(func() { e.watchers = append(e.watchers, e.closed) })
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	if e.of.ended {
		close(e.exited)
	} else {
		e.of.watchers = append(e.of.watchers, e.exited)
	}
	return nil
}

func (e *evidence) Closed() <-chan struct{} { return e.closed }
func (e *evidence) Exited() <-chan struct{} { return e.exited }

func (e *evidence) HasClosed() bool { return e.hasClosed() }

func (e *evidence) Unread() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.down)
}

func (e *evidence) Close() {}

// ears is the agent's listening socket.
type ears struct {
	accepts chan *socket
	closed  chan struct{}
	once    sync.Once
}

func newEars() *ears {
	return &ears{accepts: make(chan *socket, 1000), closed: make(chan struct{})}
}

func (l *ears) Accept() (net.Conn, error) {
	select {
	case s := <-l.accepts:
		return agentEnd{s}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *ears) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *ears) Addr() net.Addr { return &net.UnixAddr{Name: "agent"} }
