package loop

import (
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Mailbox hands events to an observer in their order, in a goroutine of its own. Put never blocks. The nil Mailbox is
// that of nobody.
type Mailbox struct {
	mu     sync.Mutex
	events []elect.Event
	closed bool
	wake   chan struct{} // has room for one: something changed
	done   chan struct{}
}

// NewMailbox starts to deliver, if there is somebody to deliver to.
func NewMailbox(observe func(elect.Event)) *Mailbox {
	if observe == nil {
		return nil
	}
	m := &Mailbox{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go m.deliver(observe)
	return m
}

// Put delivers e, of that kind and instant, after all that was put before.
func (m *Mailbox) Put(kind int, at time.Time, e elect.Event) {
	if m == nil {
		return
	}
	e.Kind, e.At = kind, at
	m.change(func() { m.events = append(m.events, e) })
}

// Drain ends the goroutine once everything was delivered, and waits for that, but for no longer than a lease. Then it
// is an error, and what it returns is closed when the observer has returned after all.
func (m *Mailbox) Drain(lease time.Duration, clock elect.Clock) (<-chan struct{}, error) {
	if m == nil {
		return nil, nil
	}
	m.change(func() { m.closed = true })
	giveUp := clock.Timer(lease)
	defer giveUp.Stop()
	select {
	case <-m.done:
		return nil, nil
	case <-giveUp.C:
		return m.done, Overdue("the observer", lease)
	}
}

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
