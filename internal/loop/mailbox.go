package loop

import (
	"sync"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Mailbox hands events to an observer in their order, in a goroutine of its own. Put never blocks.
type Mailbox struct {
	mu     sync.Mutex
	events []elect.Event
	closed bool
	wake   chan struct{} // has room for one: something changed
	done   chan struct{}
}

// NewMailbox starts to deliver.
func NewMailbox(observe func(elect.Event)) *Mailbox {
	m := &Mailbox{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go m.deliver(observe)
	return m
}

// Put delivers e after all that was put before.
func (m *Mailbox) Put(e elect.Event) { m.change(func() { m.events = append(m.events, e) }) }

// Done is closed when the observer has had everything and returned.
func (m *Mailbox) Done() <-chan struct{} { return m.done }

// Close ends the goroutine, once everything was delivered.
func (m *Mailbox) Close() { m.change(func() { m.closed = true }) }

func (m *Mailbox) change(f func()) {
	m.mu.Lock()
	f()
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *Mailbox) deliver(observe func(elect.Event)) {
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
