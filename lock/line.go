package lock

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/table"
)

// line is a waiter's place in the queues for the locks that it wants. The place belongs to the whole process, and its
// goroutines pass it on to each other. Queueing needs few extra requests: each poll of the locks also reads the tickets, each
// claim also deletes the waiter's own tickets and those of the waiters that it passes, and a release can write a new one.
//
//   - line.go: what the polls have shown, and whose turn it is
//   - ticket.go: the waiter's own tickets
//
// The methods are called by the waiter's goroutine, but an attempt that was abandoned when ctx ended may still be
// running. That is why line has a mutex.
type line struct {
	table table.Table
	wanted

	mu sync.Mutex
	queued
	shown
	gaps
}

// wanted describes what the waiter wants.
type wanted struct {
	clock  elect.Clock
	lease  time.Duration
	locks  int // the number of locks that each poll reads
	queues []string
	once   string // the lock whose done row each poll reads, or ""
	enters func(queue, before int)
	admit  func(context.Context) (leave func(), err error) // waits until it may write tickets
	ticket table.Ticket                                    // the contents of its tickets, except for the queue
}

// shown is what the polls have shown.
type shown struct {
	wait  time.Duration // how long the waiter leaves a free lock to other waiters
	ends  []string      // the last row of each queue that the poll reads
	seen  []fair.Line   // one for each queue, as of the last poll that was answered; nil before
	rows  []table.Row   // the rows of the last poll
	at    time.Time     // the time of the last poll, by Spanner's clock
	began elect.Instant // when the last poll was sent
	ended elect.Instant // when the reply to the last poll arrived
	trip  time.Duration // how long the last poll took
}

// maxFirstTrip limits what a waiter says of its first poll, which may also have opened the connection to Spanner.
const maxFirstTrip = 100 * time.Millisecond

// longestPause is the longest pause of any waiter between two polls.
const longestPause = time.Second

// stand puts a waiter in line for the queues. own is the ticket that the waiter's process already has, if any.
func (s *contender) stand(w *waiting, own table.Ticket, queues ...string) {
	w.patience = elect.Patience{Clock: s.config.Clock, Lease: s.config.Lease}
	w.ticket.ID, w.ticket.Set = s.config.ID, len(queues) > 1
	w.ticket.Lasts = table.LastsFor(s.config.Lease, w.ticket.Set)
	w.line = &line{table: w.watch.Table(s.table),
		wanted: wanted{clock: s.config.Clock, lease: s.config.Lease, locks: max(len(queues), w.ticket.Slots), queues: queues, once: w.once,
			enters: w.watch.Queued, admit: s.config.Enter, ticket: w.ticket},
		queued: queued{own: own}, shown: shown{ends: make([]string, len(queues))}, gaps: gaps{free: map[string]since{}, ago: math.MaxInt64}}
}

// Asks implements elect.Queue. If a queue was too long to be read completely, the next poll reads it up to the last ticket
// that the previous one has read.
func (l *line) Asks() *table.Beside {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &table.Beside{}
	if l.once != "" {
		b.Names = []string{table.DoneRow(l.once)}
	}
	for i, q := range l.queues {
		l.ends[i] = ""
		if l.seen != nil && len(l.seen[i].Tickets) == table.MostTickets {
			l.ends[i] = l.seen[i].End
		}
		b.Queues = append(b.Queues, table.Waiting(q, l.ends[i]))
	}
	l.began = l.clock.Now()
	return b
}

// Learns implements elect.Queue.
func (l *line) Learns(b *table.Beside) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.wait, l.at, l.ended = nil, 0, b.At, l.clock.Now()
	if first := l.trip == 0; first {
		l.trip = min(l.ended.Ran(l.began), maxFirstTrip)
	} else {
		l.trip = l.ended.Ran(l.began)
	}
	for i, q := range l.queues {
		tickets, end := table.Tickets(q, b.Rows), l.ends[i]
		if len(tickets) >= table.MostTickets {
			tickets = tickets[:table.MostTickets]
			end = tickets[table.MostTickets-1].Row()
		}
		l.seen = append(l.seen, fair.Line{Own: l.self(l.own, q, tickets), Tickets: tickets, End: end, At: b.At})
	}
	l.rows = b.Rows
}

// self returns the waiter's own ticket in a queue. If the waiter has no ticket yet, self returns the ticket that it
// would have.
func (w wanted) self(own table.Ticket, queue string, read []table.Ticket) table.Ticket {
	self := w.ticket
	self.Queue, self.Time, self.Nonce, self.Lasts = queue, own.Time, own.Nonce, 0
	if i := slices.IndexFunc(read, self.Same); i >= 0 {
		self.Beat, self.Lasts = read[i].Beat, read[i].Lasts
	}
	return self
}

// turn returns how long the waiter must leave free locks to the waiters ahead of it. If the result is zero or negative,
// the waiter can claim the locks. The claim then also makes the returned writes, which delete the waiter's own tickets and
// those of the waiters that it passes.
func (l *line) turn(seen []elect.LockView) (wait time.Duration, also []table.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, q := range l.seen {
		wait = max(wait, q.Wait(l.gap(q, seen[i]), l.clock.Random))
		also = append(also, deletes(q.Passed())...)
	}
	l.wait = wait
	return wait, append(also, deletes(l.tickets(l.queues))...)
}

func deletes(tickets []table.Ticket) (all []table.Write) {
	for _, t := range tickets {
		all = append(all, t.Delete())
	}
	return all
}

// slot is like turn, but for semaphores. It returns which of the free slots the waiter can claim, or how long the
// waiter must wait. A waiter that has no ticket yet chooses its slot at random, because such waiters do not know of
// each other.
func (l *line) slot(free []elect.LockView) (slot int, wait time.Duration, also []table.Write, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.seen[0]
	times := make([]time.Duration, len(free))
	for i, s := range free {
		times[i] = l.freeFor(s)
	}
	slot, passed, wait, ok := q.Slot(times)
	if ok {
		also = slices.Concat(deletes(q.Before()[:passed]), deletes(q.Lapsed()), deletes(l.tickets(l.queues)))
		if l.own.Nonce == "" {
			slot = int(l.clock.Random(time.Duration(len(free))))
		}
	}
	l.wait = wait
	return slot, wait, also, ok
}

// place returns how many waiters were ahead of this one at the last poll. If there are several queues, it returns the
// largest number.
func (l *line) place() (place int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.seen {
		place = max(place, q.Place())
	}
	return place
}

// urgency returns how urgent the waiter's claim is, as of the last poll.
func (l *line) urgency() elect.Urgency {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.own.Nonce != ""
	for _, q := range l.seen {
		first = first && q.Place() == 0 && len(q.Tickets) > 1
	}
	if first {
		return elect.InTurn
	}
	return elect.Patient
}

// done returns the key that was done last under the lock, as of the last poll, and the time of that poll.
func (l *line) done() (table.Done, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, err := table.RowsAt(l.at, l.rows).Done(l.once)
	return d, l.at, err
}

// slots returns the smallest number of slots that any waiter gives the semaphore, or n if n is smaller.
func (l *line) slots(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.seen[0].Tickets {
		if t.Slots > 0 && !t.Lapsed(l.at) {
			n = min(n, t.Slots)
		}
	}
	return n
}

// pause returns the time until the waiter's next poll.
func (l *line) pause(seen []elect.LockView) time.Duration {
	place := l.place()
	l.mu.Lock()
	defer l.mu.Unlock()
	ago := l.lastChange(seen)
	l.paused(ago, l.at, l.trip)
	pause := elect.Jitter(l.clock, l.pace(l.trip).Pause(place, ago))
	if l.wait > 0 {
		pause = min(pause, l.wait)
	}
	return pause
}

func (w wanted) pace(trip time.Duration) fair.Pace {
	return fair.Pace{Lease: w.lease, RoundTrip: trip, Locks: w.locks}
}
