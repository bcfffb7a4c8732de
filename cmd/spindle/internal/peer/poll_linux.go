package peer

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// poller waits for events on many descriptors in one goroutine. With the runtime's poller, each descriptor would need
// its own goroutine.
type poller struct {
	epoll int
	mu    sync.Mutex
	waits map[int32]wait
}

type wait struct {
	events   uint32
	happened chan<- struct{}
}

// polling returns the poller of this process. The first call starts the poller, which never stops.
var polling = sync.OnceValues(func() (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p := &poller{epoll: epoll, waits: map[int32]wait{}}
	go p.run()
	return p, nil
})

// await closes happened once one of the events occurs on fd, unless forget is called first. Until then, fd must stay
// open.
func await(fd int, events uint32, happened chan<- struct{}) error {
	p, err := polling()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits[int32(fd)] = wait{events, happened}
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// forget stops waiting for events on fd, so that fd can be closed.
func forget(fd int) {
	p, err := polling()
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waits := p.waits[int32(fd)]; waits {
		delete(p.waits, int32(fd))
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil)
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

func (p *poller) happens(e unix.EpollEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, waits := p.waits[e.Fd]
	if !waits || e.Events&(w.events|unix.EPOLLHUP) == 0 {
		return
	}
	delete(p.waits, e.Fd)
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, int(e.Fd), nil)
	close(w.happened)
}
