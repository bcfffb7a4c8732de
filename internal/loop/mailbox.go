package loop

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Mailbox hands events to an observer in their order, in a goroutine of its own. Put never blocks. The nil Mailbox has
// no observer.
type Mailbox struct {
	*Inbox[elect.Event]
	done chan struct{}
}

// NewMailbox starts to deliver, if there is an observer.
func NewMailbox(observe func(elect.Event)) *Mailbox {
	if observe == nil {
		return nil
	}
	m := &Mailbox{NewInbox[elect.Event](), make(chan struct{})}
	go m.deliver(observe)
	return m
}

// Put delivers e, with that kind and instant, after all earlier events.
func (m *Mailbox) Put(kind int, at time.Time, e elect.Event) {
	if m == nil {
		return
	}
	e.Kind, e.At = kind, at
	m.Inbox.Put(e)
}

// Drain waits until everything was delivered, for a lease at most, and ends the goroutine. If the time is too short, it
// returns an error, and a channel that is closed when the observer has returned after all.
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
