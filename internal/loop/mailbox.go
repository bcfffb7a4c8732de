package loop

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Mailbox hands events to an observer in their order, in a goroutine of its own. Put never blocks. The nil Mailbox is
// that of nobody.
type Mailbox struct {
	*Inbox[elect.Event]
	done chan struct{}
}

// NewMailbox starts to deliver, if there is somebody to deliver to.
func NewMailbox(observe func(elect.Event)) *Mailbox {
	if observe == nil {
		return nil
	}
	m := &Mailbox{NewInbox[elect.Event](), make(chan struct{})}
	go m.deliver(observe)
	return m
}

// Put delivers e, of that kind and instant, after all that was put before.
func (m *Mailbox) Put(kind int, at time.Time, e elect.Event) {
	if m == nil {
		return
	}
	e.Kind, e.At = kind, at
	m.Inbox.Put(e)
}

// Drain ends the goroutine once everything was delivered, and waits for that, but for no longer than a lease. Then it
// is an error, and what it returns is closed when the observer has returned after all.
func (m *Mailbox) Drain(lease time.Duration, clock elect.Clock) (<-chan struct{}, error) {
	if m == nil {
		return nil, nil
	}
	m.Close()
	giveUp := clock.Timer(lease)
	defer giveUp.Stop()
	select {
	case <-m.done:
		return nil, nil
	case <-giveUp.C:
		return m.done, Overdue("the observer", lease)
	}
}

func (m *Mailbox) deliver(observe func(elect.Event)) {
	defer close(m.done)
	for range m.Ready() {
		if e, ok := m.Next(); ok {
			observe(e)
		} else if m.Closed() {
			return
		}
	}
}
