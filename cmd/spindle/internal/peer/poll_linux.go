package peer

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// poller waits for events on many descriptors in one goroutine. With the runtime's poller, each descriptor would need
// its own goroutine.
//
// Each wait has a number, which is never used again and which its event carries. A descriptor would not do: when an
// event is handled, its descriptor may already be closed, and the next file that was opened has the same one.
type poller struct {
	epoll int
	mu    sync.Mutex
	last  uint64 // the number of the last wait
	waits map[uint64]wait
}

type wait struct {
	fd       int
	events   uint32
	happened chan<- struct{}
}

// polling is the poller of this process.
var polling poller

// start starts the poller if it is not running yet. It never stops. The caller must hold mu.
func (p *poller) start() (err error) {
	if p.waits == nil {
		if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
			p.waits = map[uint64]wait{}
			go p.run()
		}
	}
	return err
}

// await closes happened once one of the events occurs on fd, unless forget is called first. Until then, fd must stay
// open.
func await(fd int, events uint32, happened chan<- struct{}) (number uint64, err error) {
	p := &polling
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.start(); err != nil {
		return 0, err
	}
	n := p.last + 1
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(n), Pad: int32(n >> 32)}); err != nil {
		return 0, err
	}
	p.last, p.waits[n] = n, wait{fd, events, happened}
	return n, nil
}

// forget stops waiting, so that the descriptor can be closed.
func forget(number uint64) {
	polling.mu.Lock()
	defer polling.mu.Unlock()
	polling.end(number)
}

// end ends a wait, unless it has already ended. The caller must hold mu.
func (p *poller) end(n uint64) {
	if w, waits := p.waits[n]; waits {
		delete(p.waits, n)
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, w.fd, nil)
	}
}

func (p *poller) run() {
	events := make([]unix.EpollEvent, 128)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic("epoll_wait: " + err.Error()) // only a bug in this file can cause this
		}
		for _, e := range events[:max(n, 0)] {
			p.happens(e)
		}
	}
}

// happens handles an event. The kernel also reports EPOLLHUP, which nobody asked for: on a socket it comes with
// EPOLLRDHUP, and on a pidfd with EPOLLIN.
func (p *poller) happens(e unix.EpollEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
	if w, waits := p.waits[n]; waits && e.Events&w.events != 0 {
		p.end(n)
		close(w.happened)
	}
}
