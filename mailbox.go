package spindle

import (
	"sync"

	"github.com/spindle-lock/spindle/internal/elect"
)

// mailbox hands events to an observer in their order. put never blocks.
type mailbox struct {
	mu     sync.Mutex
	events []elect.Event
	closed bool
	wake   chan struct{} // has room for one: something changed
	done   chan struct{} // closed when the observer has had everything
}

func newMailbox(observe func(elect.Event)) *mailbox {
	m := &mailbox{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go m.deliver(observe)
	return m
}

func (m *mailbox) put(e elect.Event) { m.change(func() { m.events = append(m.events, e) }) }

func (m *mailbox) close() { m.change(func() { m.closed = true }) }

func (m *mailbox) change(f func()) {
	m.mu.Lock()
	f()
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) deliver(observe func(elect.Event)) {
	defer close(m.done)
	for range m.wake {
		m.mu.Lock()
		events, closed := m.events, m.closed
		m.events = nil
		m.mu.Unlock()
		for _, e := range events {
			observe(e)
		}
		if closed {
			return
		}
	}
}
