package wait

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/table"
)

// OwnTicket is the ticket of a process. Its goroutines hand it on to each other.
type OwnTicket struct {
	Own     table.Ticket // without a nonce if there is none
	missing int          // how many times the ticket was written again because it was gone
	gone    bool         // the last renewal did not find it
}

// Nonce returns a name for the tickets of a process.
func Nonce(c elect.Clock) string { return strconv.FormatInt(int64(c.Random(1<<62)), 36) }

// in returns the waiter's own tickets, one for each queue.
func (q *OwnTicket) in(queues []string, on table.Table) (own []table.Ticket) {
	if q.Own.Nonce == "" {
		return nil
	}
	for _, name := range queues {
		t := q.Own
		t.Queue = name
		t.Notify = on.Contact(t.Row())
		own = append(own, t)
	}
	return own
}

// Attend updates the process's tickets in the queues after a poll. If it fails, the caller calls it again after the
// next poll.
func (p *Place) Attend(ctx context.Context, nonce string, seen []elect.LockView) error {
	if err := p.write(ctx, p.due(nonce, seen)); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

// write writes and deletes tickets. If the request fails, the tickets are written again after the next poll. The
// request continues after ctx has ended, because otherwise its outcome would not be known.
func (p *Place) write(ctx context.Context, tickets []table.Write) error {
	if len(tickets) == 0 {
		return nil
	}
	leave, err := p.Config.Enter(ctx)
	if err == nil {
		defer leave()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), elect.Attempt(p.Config.Lease))
		defer cancel()
		err = p.Table.Queue(ctx, tickets...)
	}
	switch {
	case errors.Is(err, table.ErrMissing): // another waiter has overtaken this one since the poll, which is not a failure
		p.gone = true
		return nil
	case err != nil:
		p.gone = p.gone || errors.Is(err, table.ErrNotFound)
		p.Own.Beat = time.Time{}
	}
	return err
}

// due returns the writes that update the process's tickets after a poll:
//
//   - The waiter's tickets are written if the waiter has none yet, or if waiters that overtook it have deleted them.
//   - If the tickets have been deleted several times, new ones are written at the end of the queues. Otherwise, a
//     process that can queue but can't claim would keep delaying the waiters behind it.
//   - A set's tickets are marked as ready if the set is first in all its queues.
//   - Tickets are renewed when a third of their lifetime has passed or, if they are ready, half of their grace period.
//     They are also renewed when their key or size changes.
//   - Old tickets of the process are deleted and, along with any of the writes above, expired tickets of other waiters.
func (p *Place) due(nonce string, seen []elect.LockView) (writes []table.Write) {
	has := !p.gone
	for _, q := range p.seen {
		has = has && (q.Has() || q.Beyond())
		for _, t := range q.Tickets {
			if t.Nonce == nonce && !t.Same(p.Own) {
				writes = append(writes, t.Delete())
			}
		}
	}
	was, write := p.Own.Ready, table.Ticket.Put
	p.Own.Ready = p.Ticket.Set && isFirst(p, seen)
	switch {
	case p.Own.Nonce == "":
		for i, q := range p.seen {
			p.Queued(i, q.Place())
		}
		p.take(p.Ticket, nonce, table.TokenAt(p.at))
	case !has && p.Own.Expired(p.at): // expired tickets are deleted even if their waiters can claim
	case !has && p.missing >= 3:
		p.take(p.Ticket, nonce, table.TokenAt(p.at))
	case !has:
		p.missing++
	case p.Own.Key != p.Ticket.Key, p.Own.Slots != p.Ticket.Slots: // put by another goroutine of the process
		p.Own.Key, p.Own.Slots, write = p.Ticket.Key, p.Ticket.Slots, table.Ticket.Renew
	case p.Own.Ready && (!was || p.at.Sub(p.Own.Beat) >= p.Own.Grace/2), p.at.Sub(p.Own.Beat) >= p.Own.Lasts/3:
		write = table.Ticket.Renew
	default:
		return writes
	}
	p.stamp(p.at, pace(p))
	p.gone = false
	for _, t := range p.in(p.Queues, p.Table) {
		writes = append(writes, write(t))
	}
	for _, q := range p.seen {
		writes = append(writes, deletes(q.Expired())...)
	}
	return writes
}

// isFirst reports whether a set is first in all its queues. If a lock is free and the waiters ahead of the set do not
// claim it, they may have died. After a while, the set may overtake them, and then counts as first in that queue.
// Otherwise, the set might have to wait until their tickets have expired.
func isFirst(p *Place, seen []elect.LockView) bool {
	for i, q := range p.seen {
		passes := seen[i].FreeIn <= 0 && q.Wait(p.gap(q, seen[i]), p.Config.Clock.Random) <= 0
		if !passes && (len(q.Before()) > 0 || q.Beyond()) {
			return false
		}
	}
	return true
}

// take replaces the waiter's ticket with a new one, for a wait that began at the given time.
func (q *OwnTicket) take(t table.Ticket, nonce string, at table.Token) {
	t.Time, t.Nonce = table.TurnFor(at, t.Rank), nonce
	q.Own, q.missing = t, 0
}

// stamp records in the waiter's ticket when it is written, and how fast the waiter is.
func (q *OwnTicket) stamp(at time.Time, p fair.Pace) {
	q.Own.Beat, q.Own.Grace, q.Own.RoundTrip = at, p.Grace(), p.RoundTrip
}

// GoToTheEnd returns writes for the commit that releases the locks. The writes put a new ticket at the end of the
// queues, for the next goroutine of the process. The ticket has no key, because it is not known which key that
// goroutine wants. The ticket's time is Spanner's time at the last poll, plus the time since the poll's reply by the
// monotonic clock.
func (p *Place) GoToTheEnd(nonce string) (writes []table.Write) {
	at := p.at.Add(p.Config.Clock.Now().Ran(p.ended))
	p.take(p.Ticket, nonce, table.TokenAt(at))
	p.stamp(at, pace(p))
	p.Own.Key = ""
	for _, t := range p.in(p.Queues, p.Table) {
		writes = append(writes, t.Put())
	}
	return writes
}

// LongestForget returns how long, at most, a call delays its return while its ticket is being deleted.
func LongestForget(lease time.Duration) time.Duration { return min(lease/10, 500*time.Millisecond) }

// Forget deletes the waiter's tickets. If it can't delete a ticket, the ticket expires by itself.
func (p *Place) Forget() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*elect.Attempt(p.Config.Lease)) // a request may be lost
	defer cancel()
	_ = elect.Insist(ctx, p.Config.Clock, p.Config.Lease, func(ctx context.Context) error {
		return p.Table.Queue(ctx, deletes(p.in(p.Queues, p.Table))...)
	})
}
