package loop

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Mailbox delivers events to an observer, in order, from its own goroutine. Put never blocks. A nil Mailbox discards
// its events.
type Mailbox struct {
	*Inbox[elect.Event]
	done chan struct{}
}

// newMailbox starts delivering events to observe. If observe is nil, it returns a nil Mailbox.
func newMailbox(observe func(elect.Event)) *Mailbox {
	if observe == nil {
		return nil
	}
	m := &Mailbox{NewInbox[elect.Event](), make(chan struct{})}
	go m.deliver(observe)
	return m
}

// Put delivers e, with the given kind and time, after all earlier events.
func (m *Mailbox) Put(kind int, at time.Time, e elect.Event) {
	if m == nil {
		return
	}
	e.Kind, e.At = kind, at
	m.Inbox.Put(e)
}

// drain closes the Mailbox, and waits until the observer has handled all earlier events. It waits for at most one lease
// duration. If the observer takes longer, drain returns an error, and a channel that is closed when the observer has
// returned.
func (m *Mailbox) drain(lease time.Duration, clock elect.Clock) (<-chan struct{}, error) {
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
