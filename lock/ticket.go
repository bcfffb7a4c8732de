package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// queued is the waiter's own ticket.
type queued struct {
	own     table.Ticket   // without a nonce if there is none
	missing int            // how many times it was written again because it was gone
	gone    bool           // the last renewal did not find it
	writing sync.WaitGroup // counts the writes of attend that have not ended
}

// tickets returns the waiter's own tickets, one for each queue.
func (o *queued) tickets(queues []string) (own []table.Ticket) {
	if o.own.Nonce == "" {
		return nil
	}
	for _, q := range queues {
		t := o.own
		t.Queue = q
		own = append(own, t)
	}
	return own
}

// attend updates the process's tickets after a poll:
//
//   - It writes the waiter's tickets if the waiter has none yet, or if waiters that passed it have deleted them.
//   - If they have been deleted several times, it writes new tickets at the end of the queues. Otherwise, a process
//     that can queue but can't claim would keep delaying the waiters behind it.
//   - It marks a set's tickets as ready if the set is first in all its queues.
//   - It renews the tickets once in a third of the time for which they count.
//   - It deletes stale tickets of the process and, with any of these writes, lapsed tickets of other waiters.
//
// attend returns when ctx ends, but its write continues: see forget.
func (l *line) attend(ctx context.Context, nonce string, seen []elect.LockView) error {
	writes := l.due(nonce, seen)
	if len(writes) == 0 {
		return nil
	}
	leave, err := l.admit(ctx)
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	l.writing.Go(func() {
		defer leave()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), elect.Attempt(l.lease))
		defer cancel()
		written <- l.wrote(l.table.Queue(ctx, writes...))
	})
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wrote learns from the outcome of a write of the waiter's tickets. If the write failed, they are written again after
// the next poll.
func (l *line) wrote(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, table.ErrMissing): // another waiter passed this one after the poll, which is no failure
		l.gone = true
		return nil
	case err != nil:
		l.gone = l.gone || errors.Is(err, table.ErrNotFound)
		l.own.Beat = time.Time{}
	}
	return err
}

// due returns the writes for attend.
func (l *line) due(nonce string, seen []elect.LockView) (writes []table.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		return nil
	}
	has := !l.gone
	for _, q := range l.seen {
		has = has && (q.Has() || q.Beyond())
		for _, t := range q.Tickets {
			if t.Nonce == nonce && !t.Same(l.own) {
				writes = append(writes, t.Delete())
			}
		}
	}
	was, write := l.own.Ready, table.Ticket.Put
	l.own.Ready = l.ticket.Set && l.isFirst(seen)
	switch {
	case l.own.Nonce == "":
		for i, q := range l.seen {
			l.enters(i, q.Place())
		}
		l.take(nonce, table.TokenAt(l.at))
	case !has && l.own.Lapsed(l.at): // the waiters behind it do not wait for a lapsed ticket, and delete it
	case !has && l.missing >= 3:
		l.take(nonce, table.TokenAt(l.at))
	case !has:
		l.missing++
	case l.own.Key != l.ticket.Key: // the ticket was put by another goroutine of the process
		l.own.Key, write = l.ticket.Key, table.Ticket.Renew
	case l.own.Ready && (!was || l.at.Sub(l.own.Beat) >= l.own.Grace/2), l.at.Sub(l.own.Beat) >= l.own.Lasts/3:
		write = table.Ticket.Renew
	default:
		return writes
	}
	l.stamp(l.at)
	l.gone = false
	for _, t := range l.tickets(l.queues) {
		writes = append(writes, write(t))
	}
	for _, q := range l.seen {
		writes = append(writes, deletes(q.Lapsed())...)
	}
	return writes
}

// isFirst reports whether a set is first in all its queues. If a lock is free and the waiters ahead of the set do not claim
// it, they may have died. After a while, the set is allowed to overtake them and then counts as first in that queue. No
// other waiter may be left to remove the dead waiters' tickets.
func (l *line) isFirst(seen []elect.LockView) bool {
	for i, q := range l.seen {
		passes := seen[i].FreeIn <= 0 && q.Wait(l.gap(q, seen[i]), l.clock.Random) <= 0
		if !passes && (len(q.Before()) > 0 || q.Beyond()) {
			return false
		}
	}
	return true
}

// take gives the waiter a new ticket with the time at.
func (l *line) take(nonce string, at table.Token) {
	l.own = l.ticket
	l.own.Time, l.own.Nonce = at, nonce
	l.stamp(at.Time())
	l.missing = 0
}

// stamp puts into the waiter's ticket when it is written, and how fast the waiter is.
func (l *line) stamp(at time.Time) {
	l.own.Beat, l.own.Grace, l.own.RoundTrip = at, l.pace(l.trip).Grace(), l.trip
}

// goToTheEnd returns the writes with which the release also puts a new ticket at the end of the queue, for the next goroutine
// of the process.
// The ticket has no key, because it is not known which key that goroutine wants. The ticket's time is Spanner's time at
// the last poll, plus the time that has passed since then by the monotonic clock.
func (l *line) goToTheEnd(q *queue) (writes []table.Write) {
	l.mu.Lock()
	l.take(q.id(l.clock), table.TokenAt(l.at.Add(l.clock.Now().Ran(l.ended))))
	l.own.Key = ""
	for _, t := range l.tickets(l.queues) {
		writes = append(writes, t.Put())
	}
	l.mu.Unlock()
	l.handOn(q, false)
	return writes
}

// takeOver takes over the ticket of the goroutine that was first in the process before this one.
func (l *line) takeOver(q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own, l.missing, l.gone = q.ticket, 0, false
}

// served is called after a claim, which has deleted the waiter's tickets.
func (l *line) served() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = table.Ticket{}
}

// handOn leaves the ticket to the next goroutine of the process. If no goroutine takes it over, the last goroutine to
// leave the queue deletes it. failed says whether the waiter's last request failed.
func (l *line) handOn(q *queue, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	writes := deletes(l.tickets(l.queues))
	q.handOn(l.own, func() { l.forget(writes, failed) })
}

// longestForget limits how long a call that has ended waits until its ticket is deleted.
const longestForget = 500 * time.Millisecond

// forget deletes the ticket, because the program may exit as soon as the call returns. It waits for at most a tenth of
// the lease, and not at all after a failed request, and then continues in the background. It deletes the ticket after
// the writes in progress, which could otherwise bring it back. A ticket that it can't delete lapses.
func (l *line) forget(writes []table.Write, failed bool) {
	deleted := make(chan struct{})
	go func() {
		defer close(deleted)
		l.writing.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 3*elect.Attempt(l.lease)) // a request may be lost
		defer cancel()
		_ = elect.Insist(ctx, l.clock, l.lease, func(ctx context.Context) error {
			return l.table.Queue(ctx, writes...)
		})
	}()
	if failed {
		return
	}
	t := l.clock.Timer(min(l.lease/10, longestForget))
	defer t.Stop()
	select {
	case <-deleted:
	case <-t.C:
	}
}
