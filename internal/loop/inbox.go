package loop

import "sync"

// Inbox holds events for one goroutine, in order. Put never blocks, and can be called from any goroutine.
type Inbox[E any] struct {
	mu     sync.Mutex
	events []E
	closed bool
	ready  chan struct{} // buffers one value, which means that there are events or that the Inbox was closed
}

// NewInbox returns an empty Inbox.
func NewInbox[E any]() *Inbox[E] { return &Inbox[E]{ready: make(chan struct{}, 1)} }

// Put adds an event. If the Inbox is closed, Put drops the event and reports false.
func (i *Inbox[E]) Put(e E) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.events = append(i.events, e)
	i.wake()
	return true
}

// Ready returns a channel that receives a value when Next has an event to return or the Inbox has been closed. It may
// also receive a value when there is no event.
func (i *Inbox[E]) Ready() <-chan struct{} { return i.ready }

// Next returns the oldest event, if there is one.
func (i *Inbox[E]) Next() (e E, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.events) == 0 {
		return e, false
	}
	e, i.events = i.events[0], i.events[1:]
	if len(i.events) > 0 || i.closed {
		i.wake()
	}
	return e, true
}

// Close makes Put refuse further events. Earlier events can still be received.
func (i *Inbox[E]) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.wake()
}

// Closed reports whether the Inbox was closed.
func (i *Inbox[E]) Closed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed
}

func (i *Inbox[E]) wake() {
	select {
	case i.ready <- struct{}{}:
	default:
	}
}
