// Package wait waits for locks on behalf of a candidate. A waiter in the queues (Place) takes turns with the waiters of
// all processes, in the order that package fair defines. A candidate for an elector's lock (Follower) does not queue.
//
//   - place.go: what the polls have shown, and whose turn it is; gap.go: how long a lock has been free
//   - slots.go: how a waiter chooses a slot of a semaphore
//   - ticket.go: the waiter's own tickets
//   - notify.go: notifications; follower.go: a follower's wait
package wait

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// Place waits in the queues for a waiter's locks. Its tickets belong to the whole process, whose goroutines hand them
// on to each other. Queueing needs few extra requests: a poll of the locks also reads the tickets, and a release can
// also write new ones. A claim also deletes the waiter's own tickets and those of the waiters that it overtakes, except
// for the tickets of sets.
//
// Only one goroutine at a time may call its methods.
type Place struct {
	Config *options.Config
	Table  table.Table
	Queues []string
	Once   string                 // the lock whose last completed key each poll reads, or ""
	Ticket table.Ticket           // the contents of its tickets, except for the queue
	Ear    *notify.Ear            // nil without notifications
	Queued func(queue, place int) // called when the waiter joins a queue, with its place in that queue
	OwnTicket
	shown
	gaps
}

// New returns the place of a waiter that has not polled yet. If the caller sets the Ear, it must also close it.
func New(c *options.Config, t table.Table, queues ...string) Place {
	ticket := table.Ticket{ID: c.ID, Rank: c.Rank, Set: len(queues) > 1, Lasts: table.LastsFor(c.Lease, len(queues) > 1)}
	return Place{Config: c, Table: t, Queues: queues, Ticket: ticket, Queued: func(int, int) {}, gaps: gaps{freed: map[string]since{}, ago: math.MaxInt64}}
}

// MaxPause returns the longest pause of a waiter between two polls, unless its Ear allows a longer one.
func MaxPause(c *options.Config) time.Duration { return cmp.Or(c.Look, min(c.Lease/10, longestPause)) }

// InOrder wraps a choice of locks so that nothing is chosen before it is this waiter's turn in all its queues.
func (p *Place) InOrder(choose elect.Choose) elect.Choose {
	return func(seen []elect.LockView) elect.Decision {
		d := choose(seen)
		if d.Claim == nil {
			return d
		}
		wait, passed := p.turn(seen)
		if wait > 0 {
			return elect.Decision{Wait: wait}
		}
		d.Urgency, d.Also = p.Urgency(), passed
		return d
	}
}

// shown is what the polls have shown.
type shown struct {
	wait  time.Duration // how long the waiter leaves a free lock to other waiters
	seen  []fair.Line   // one for each queue, as of the last poll that was answered; nil before
	rows  []table.Row   // the rows of the last poll
	at    time.Time     // the time of the last poll, by Spanner's clock
	began elect.Instant // when the last poll was sent
	ended elect.Instant // when the reply to the last poll arrived
	trip  time.Duration // how long the last poll took
}

// maxFirstTrip limits the round trip that a waiter reports for its first poll, which may also have opened the
// connection to Spanner.
const maxFirstTrip = 100 * time.Millisecond

// longestPause is the default of MaxPause for leases of ten seconds or more.
const longestPause = time.Second

// Asks implements elect.Queue. If a queue was too long to be read completely, the next poll usually reads it only up to
// the last ticket that was read before (see end).
func (p *Place) Asks() *table.Beside {
	b := &table.Beside{}
	if p.Once != "" {
		b.Names = []string{table.DoneRow(p.Once)}
	}
	for i, q := range p.Queues {
		b.Queues = append(b.Queues, table.Waiting(q, p.end(i)))
	}
	p.began = p.Config.Clock.Now()
	return b
}

// end returns the key up to which the next poll reads a queue, or "" for no limit. Without a limit, reading a long
// queue takes three requests or more. The limit is therefore lifted only in two cases: more than half of the tickets up
// to it are gone; or some are gone, fewer than half are ahead of the waiter, and its own ticket comes after the limit.
func (p *Place) end(queue int) string {
	if p.seen == nil {
		return ""
	}
	const half = table.MostTickets / 2
	q := p.seen[queue]
	if n := len(q.Tickets); n < half || n < table.MostTickets && q.Beyond() && len(q.Before()) < half {
		return ""
	}
	return q.End
}

// Learns implements elect.Queue.
func (p *Place) Learns(b *table.Beside) {
	var seen []fair.Line
	for i, q := range p.Queues {
		tickets, end := table.Tickets(q, b.Rows), p.end(i)
		if len(tickets) >= table.MostTickets {
			tickets = tickets[:table.MostTickets]
			end = tickets[table.MostTickets-1].Row()
		}
		seen = append(seen, fair.Line{Own: p.self(q, tickets), Tickets: tickets, End: end, At: b.At})
	}
	first := p.seen == nil
	p.seen, p.rows, p.wait, p.at, p.ended = seen, b.Rows, 0, b.At, p.Config.Clock.Now()
	if p.trip = p.ended.Ran(p.began); first {
		p.trip = min(p.trip, maxFirstTrip)
	}
}

// self returns the waiter's own ticket in a queue. If the waiter has no ticket yet, the result has no time and no
// nonce.
func (p *Place) self(queue string, read []table.Ticket) table.Ticket {
	self := p.Ticket
	self.Queue, self.Time, self.Nonce, self.Lasts = queue, p.Own.Time, p.Own.Nonce, 0
	if i := slices.IndexFunc(read, self.Same); i >= 0 {
		self.Beat, self.Lasts = read[i].Beat, read[i].Lasts
	}
	return self
}

// turn returns how long the waiter must leave free locks to the waiters ahead of it. If the result is zero, the waiter
// can claim the locks. The claim then also makes the returned writes. These delete the waiter's own tickets, and the
// tickets that fair.Line.Passed returns.
func (p *Place) turn(seen []elect.LockView) (wait time.Duration, also []table.Write) {
	for i, q := range p.seen {
		gap := p.gap(q, seen[i])
		wait = max(wait, q.Wait(gap, p.Config.Clock.Random), p.Ear.Free(seen[i].Name, seen[i].Token, q.Before(), fair.After(q.Before(), 1, gap.After)))
		also = append(also, deletes(q.Passed())...)
	}
	p.wait = wait
	return wait, append(also, deletes(p.in(p.Queues, p.Table))...)
}

func deletes(tickets []table.Ticket) (all []table.Write) {
	for _, t := range tickets {
		all = append(all, t.Delete())
	}
	return all
}

// free does for semaphores what turn does for other locks. It returns which of the free slots the waiter can claim, or
// how long the waiter must wait. A waiter that has no ticket yet chooses its slot at random, because waiters without
// tickets do not know of each other.
func (p *Place) free(free []elect.LockView) (slot int, wait time.Duration, also []table.Write, ok bool) {
	q := p.seen[0]
	times := make([]time.Duration, len(free))
	for i, s := range free {
		times[i] = p.freeFor(s)
	}
	slot, passed, wait, ok := q.Slot(times)
	for _, s := range free {
		if !ok {
			p.Ear.Free(s.Name, s.Token, q.Before(), 0)
		}
	}
	if ok {
		also = slices.Concat(deletes(q.Before()[:passed]), deletes(q.Expired()), deletes(p.in(p.Queues, p.Table)))
		if p.Own.Nonce == "" {
			slot = int(p.Config.Clock.Random(time.Duration(len(free))))
		}
	}
	p.wait = wait
	return slot, wait, also, ok
}

// Ahead returns how many waiters were ahead of this one at the last poll. If there are several queues, it returns the
// largest number.
func (p *Place) Ahead() (place int) {
	for _, q := range p.seen {
		place = max(place, q.Place())
	}
	return place
}

// Urgency returns how urgent the waiter's claim is, as of the last poll.
func (p *Place) Urgency() elect.Urgency {
	first := p.Own.Nonce != ""
	for _, q := range p.seen {
		first = first && q.Place() == 0 && len(q.Tickets) > 1
	}
	if first {
		return elect.InTurn
	}
	return elect.Patient
}

// Done returns the last completed key of the lock Once, as of the last poll, and the time of that poll.
func (p *Place) Done() (table.Done, time.Time, error) {
	d, err := table.RowsAt(p.at, p.rows).Done(p.Once)
	return d, p.at, err
}

// pause returns the time until the waiter's next poll.
func (p *Place) pause(seen []elect.LockView) time.Duration {
	ago := p.lastChange(seen)
	p.paused(ago, p.at, p.trip)
	pause := elect.Jitter(p.Config.Clock, pace(p).Pause(p.Ahead(), ago))
	if p.wait > 0 {
		pause = min(pause, p.wait)
	}
	return pause
}

func pace(p *Place) fair.Pace {
	return fair.Pace{Lease: p.Config.Lease, RoundTrip: p.trip, Locks: max(len(p.Queues), p.Ticket.Slots)}
}
