package wait

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/table"
)

// Rest waits until the next poll is due after a step. It returns early if ctx ends.
func (p *Place) Rest(ctx context.Context, step elect.Step) {
	p.listen(step.Seen)
	p.sleep(ctx, min(step.Pause, p.pause(step.Seen)), step.Latest)
}

// listen tells the waiter's Ear what a poll has shown. A waiter for a set of locks polls as often as without
// notifications, because its tickets must say whether it is first in all queues. It still polls early if a message says
// that one of the locks is free.
func (p *Place) listen(seen []elect.LockView) {
	if p.Ear == nil {
		return
	}
	s := notify.Seen{Trip: p.trip, Ticket: p.Own}
	s.Ticket.Queue = p.Queues[0]
	for i, view := range seen {
		lock := lockOf(view)
		lock.Ahead = p.queueOf(i).Before()
		s.Locks = append(s.Locks, lock)
	}
	p.Ear.Learn(s, p.began)
}

// queueOf returns the queue for a lock. All slots of a semaphore have the same one.
func (s *shown) queueOf(lock int) fair.Line { return s.seen[min(lock, len(s.seen)-1)] }

// sleep waits until the next poll is due, usually for the given pause. While all holders answer, it waits for about a
// lease. If the lease is longer than a minute, the first waiter then waits only for a quarter of the lease, but for at
// least 20 s. The argument latest is the time until a lock can become free, and limits these longer waits. If the last
// write of a ticket failed, sleep waits only for the given pause.
func (p *Place) sleep(ctx context.Context, pause, latest time.Duration) {
	lease := p.Config.Lease
	long := lease - p.Config.Clock.Random(lease/10+1)
	if p.Ahead() == 0 && lease > time.Minute { // in case the holder answers messages, but otherwise hangs
		long = max(lease/4, 20*time.Second)
	}
	if p.gone || p.Own.Nonce != "" && p.Own.Beat.IsZero() { // its ticket is not in the table, or may expire
		long = pause
	}
	p.Ear.Sleep(ctx, p.Config.Clock, pause, min(long, latest))
}

// Book returns a new notify.Book for a term, with the waiters to tell when its locks are released.
func (p *Place) Book(t *elect.Term) notify.Book {
	if p.Config.Notifier == nil || p.seen == nil {
		return nil
	}
	clock, began := p.Config.Clock, p.Config.Clock.Now()
	after := func(ahead []table.Ticket) time.Duration {
		if p.Ticket.Slots > 0 {
			return fair.AfterSlots(ahead)
		}
		return fair.After(ahead, len(ahead), clock.Now().Since(began))
	}
	var terms []notify.Term
	for i, name := range t.Names() {
		terms = append(terms, notify.Term{Name: name, Waiters: p.queueOf(i).Behind(), After: after})
	}
	return p.Config.Book(t, terms...)
}
