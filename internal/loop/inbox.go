package loop

import "sync"

// Inbox holds events for one goroutine, in order. Put never blocks, and can be called from any goroutine.
type Inbox[E any] struct {
	mu     sync.Mutex
	events []E
	closed bool
	ready  chan struct{} // has room for one value, which says that there are events or that it was closed
}

// NewInbox returns an empty Inbox.
func NewInbox[E any]() *Inbox[E] { return &Inbox[E]{ready: make(chan struct{}, 1)} }

// Put adds an event. It reports false if the Inbox is closed, so that the event will not be received.
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

// Ready returns a channel that has a value when Next has an event to return or the Inbox was closed. The channel can
// also have a value when the Inbox is empty.
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
