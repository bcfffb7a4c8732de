package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/table"
)

// line is a waiter's place in the queues of the locks that it wants, among the processes. It is the Store of its
// candidate: each look also reads the tickets, and a claim also deletes its own and those that it passes, with no
// further request.
//
// The waiter's goroutine calls it. An attempt that ctx has left behind may call it once more: hence the mutex.
type line struct {
	table.Store
	wanted

	mu sync.Mutex
	queued
	shown
	wait    time.Duration // how long it leaves a free lock to others
	leaves  []table.Write // of the next claim
	requeue []table.Write // of the release
}

// wanted is what the waiter wants.
type wanted struct {
	clock  elect.Clock
	lease  time.Duration
	locks  int // how many locks each look reads
	queues []string
	beside []string // further rows that each look reads: not the lock's
	enters func(queue, before int)
	ticket table.Ticket // what its tickets say, except for the queue
}

// queued is the waiter's own ticket.
type queued struct {
	own     table.Ticket // no nonce: it has none
	missing int          // how many looks in a row did not find it
	touched time.Time    // when its tickets were last put
}

// shown is what looks have shown.
type shown struct {
	ends  []string      // the row up to which the look reads each queue
	seen  []fair.Line   // by the last look, one for each queue; nil: nothing was seen
	rows  []table.Row   // of beside
	at    time.Time     // of the last look, by Spanner's clock,
	ended elect.Instant // and when its answer was there
	took  time.Duration
	free  map[string]since // since when each lock was seen to be free
}

type since struct {
	token table.Token
	at    time.Time
}

// stand puts a waiter into the queues of what it wants. own is its process's ticket, if there is one already.
func (s *contender) stand(w *waiting, own table.Ticket, queues ...string) {
	w.ticket.ID, w.ticket.Set = s.config.ID, len(queues) > 1
	w.line = &line{Store: w.watch.Table(s.table).Store,
		wanted: wanted{clock: s.config.Clock, lease: s.config.Lease, locks: max(len(queues), w.ticket.Slots), queues: queues, beside: w.beside,
			enters: w.watch.Queued, ticket: w.ticket},
		queued: queued{own: own}, shown: shown{ends: make([]string, len(queues)), free: map[string]since{}}}
}

// Read implements table.Store.
func (l *line) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	if step != "observe" {
		return l.Store.Read(ctx, step, bound, keys)
	}
	began := l.clock.Now()
	keys.Names = slices.Concat(keys.Names, l.beside)
	rows, at, err := table.ReadQueues(ctx, l.Store, step, bound, keys, l.ranges()...)
	if err != nil {
		return nil, at, err
	}
	return l.learn(rows, at, began), at, nil
}

// ranges returns the keys of the tickets that a look reads: if there were many, up to the last one that was read
// before.
func (l *line) ranges() (all []table.Range) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, q := range l.queues {
		l.ends[i] = ""
		if l.seen != nil && len(l.seen[i].Tickets) == table.MostTickets {
			l.ends[i] = l.seen[i].End
		}
		all = append(all, table.Waiting(q, l.ends[i]))
	}
	return all
}

// learn takes in what a look has read, and returns the rows that the caller asked for.
func (l *line) learn(rows []table.Row, at time.Time, began elect.Instant) []table.Row {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.rows, l.wait, l.at, l.ended = nil, nil, 0, at, l.clock.Now()
	l.took = l.ended.Ran(began)
	for i, q := range l.queues {
		tickets, end := table.Tickets(q, rows), l.ends[i]
		if len(tickets) >= table.MostTickets {
			tickets = tickets[:table.MostTickets]
			end = tickets[table.MostTickets-1].Row()
		}
		l.seen = append(l.seen, fair.Line{Own: l.self(q), Tickets: tickets, End: end, At: at})
	}
	var others []table.Row
	for _, row := range rows {
		switch {
		case slices.Contains(l.beside, row.Name):
			l.rows = append(l.rows, row)
		case !table.IsTicket(row.Name):
			others = append(others, row)
		}
	}
	return others
}

// self returns its own ticket, or, if it has none, what that would say.
func (l *line) self(queue string) table.Ticket {
	self := l.ticket
	self.Queue, self.Time, self.Nonce = queue, l.own.Time, l.own.Nonce
	return self
}

// Commit implements table.Store.
func (l *line) Commit(ctx context.Context, step string, writes []table.Write) error {
	return l.Store.Commit(ctx, step, slices.Concat(writes, l.further(step)))
}

// Transact implements table.Store.
func (l *line) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return l.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		return slices.Concat(writes, l.further(step)), err
	})
}

// further returns what a commit writes to the queues.
func (l *line) further(step string) []table.Write {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch step {
	case "claim":
		return l.leaves
	case "release", "finish":
		return l.requeue
	}
	return nil
}

// turn returns how long it must leave free locks to others; it need not if that is not positive. The claim that follows
// then deletes its own tickets, and those that it passes.
func (l *line) turn(seen []elect.LockView) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait = 0
	for i, q := range l.seen {
		l.wait = max(l.wait, q.Wait(l.freeIn(q, seen[i]), l.clock.Random))
	}
	if l.wait <= 0 {
		l.leaves = nil
		for _, q := range l.seen {
			l.leave(q.Passed())
		}
		l.leave(l.tickets())
	}
	return l.wait
}

// leave makes the next claim delete these tickets too.
func (l *line) leave(tickets []table.Ticket) {
	for _, t := range tickets {
		l.leaves = append(l.leaves, t.Delete())
	}
}

// slot is for a semaphore. It returns which of the free slots is its own, or how long it has to wait. While nobody
// waits, newcomers choose at random, because they don't know of each other.
func (l *line) slot(free []elect.LockView) (slot int, wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.seen[0]
	times := make([]time.Duration, len(free))
	for i, s := range free {
		times[i] = l.freeFor(s)
	}
	slot, passed, wait, ok := q.Slot(times)
	if ok {
		l.leaves = nil
		l.leave(q.Before()[:passed])
		l.leave(l.tickets())
		if l.own.Nonce == "" {
			slot = int(l.clock.Random(time.Duration(len(free))))
		}
	}
	l.wait = wait
	return slot, wait, ok
}

// freeIn returns how long a lock has been free for its queue. Nothing says since when a lock without a row is free; as
// those before did not take it, the time counts from the last one that came.
func (l *line) freeIn(q fair.Line, s elect.LockView) time.Duration {
	free := l.freeFor(s)
	if before := q.Before(); !s.Exists && len(before) > 0 {
		last := slices.MaxFunc(before, func(a, b table.Ticket) int { return a.Beat.Compare(b.Beat) })
		free = max(free, s.At.Sub(last.Beat))
	}
	return free
}

// freeFor returns how long a lock has been free: as its rows say, or since it was first seen to be, if that is longer.
func (l *line) freeFor(s elect.LockView) time.Duration {
	known, ok := l.free[s.Name]
	if !ok || known.token != s.Token {
		known = since{s.Token, s.At}
		l.free[s.Name] = known
	}
	return max(s.FreeFor, s.At.Sub(known.at))
}

// place returns how many were before it at the last look, in the longest of its queues.
func (l *line) place() (place int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.seen {
		place = max(place, q.Place())
	}
	return place
}

// done returns what was done last under a lock, at the time of the last look.
func (l *line) done() (table.Done, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, err := table.DoneIn(l.rows)
	return d, l.at, err
}

// slots returns the smallest size that a waiter gives a semaphore, or n.
func (l *line) slots(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.seen[0].Tickets {
		if t.Slots > 0 {
			n = min(n, t.Slots)
		}
	}
	return n
}

// pause returns the time to its next look. The locks had changed hands that long before the last one.
func (l *line) pause(ago time.Duration) time.Duration {
	place := l.place()
	l.mu.Lock()
	defer l.mu.Unlock()
	pause := elect.Jitter(l.clock, l.pace().Pause(place, ago))
	if l.wait > 0 {
		pause = min(pause, l.wait)
	}
	return pause
}

func (l *line) pace() fair.Pace { return fair.Pace{Lease: l.lease, RoundTrip: l.took, Locks: l.locks} }

// tickets returns its own, one for each queue.
func (l *line) tickets() (own []table.Ticket) {
	if l.own.Nonce == "" {
		return nil
	}
	for _, q := range l.queues {
		t := l.own
		t.Queue = q
		own = append(own, t)
	}
	return own
}

// attend writes what the last look makes necessary: its ticket, if it has none or others have passed it; that it is
// first in all its queues; and the deletion of its process's stale tickets. It replaces a ticket that others pass again
// and again: otherwise a process that can queue and not claim would cost each turn its grace.
func (l *line) attend(ctx context.Context, nonce string, seen []elect.LockView) error {
	t := table.Table{Store: l.Store}
	return t.Queue(ctx, l.due(nonce, seen)...)
}

// due returns the writes for attend.
func (l *line) due(nonce string, seen []elect.LockView) (writes []table.Write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		return nil
	}
	has := true
	for _, q := range l.seen {
		has = has && (q.Has() || q.Beyond())
		for _, t := range q.Tickets {
			if t.Nonce == nonce && !t.Same(l.own) {
				writes = append(writes, t.Delete())
			}
		}
	}
	was := l.own.Ready
	l.own.Ready = l.ticket.Set && l.isFirst(seen)
	switch {
	case l.own.Nonce == "":
		for i, q := range l.seen {
			l.enters(i, q.Place())
		}
		l.take(nonce, table.TokenAt(l.at))
	case !has && l.missing >= 3:
		l.take(nonce, table.TokenAt(l.at))
	case !has:
		l.missing++
	case l.own.Key != l.ticket.Key: // of another goroutine of the process
		l.own.Key = l.ticket.Key
	case l.own.Ready && (!was || l.at.Sub(l.touched) >= l.own.Grace), l.ticket.Set && l.at.Sub(l.touched) >= fair.SetRenews:
	default:
		return writes
	}
	l.touched = l.at
	for _, t := range l.tickets() {
		writes = append(writes, t.Put())
	}
	return writes
}

// isFirst reports whether the turn of a set has come in all its queues, for locks that are held and for free ones.
// Those before it for a free lock may have died: if nobody else wants that lock, nobody else passes them.
func (l *line) isFirst(seen []elect.LockView) bool {
	for i, q := range l.seen {
		passes := seen[i].FreeIn <= 0 && q.Wait(l.freeIn(q, seen[i]), l.clock.Random) <= 0
		if !passes && (len(q.Before()) > 0 || q.Beyond()) {
			return false
		}
	}
	return true
}

// take gives it a ticket with that time.
func (l *line) take(nonce string, at table.Token) {
	l.own = l.ticket
	l.own.Time, l.own.Nonce, l.own.Grace = at, nonce, min(l.pace().Grace(), table.MaxGrace)
	l.missing = 0
}

// goToTheEnd makes the commit of the release put a new ticket at the end of the queue, for the next goroutine of the
// process, which has it from here. What that goroutine is to do is not known. The time is Spanner's at the last look,
// plus what has passed since by the monotonic clock.
func (l *line) goToTheEnd(q *queue) {
	l.mu.Lock()
	l.take(q.id(l.clock), table.TokenAt(l.at.Add(l.clock.Now().Ran(l.ended))))
	l.own.Key = ""
	for _, t := range l.tickets() {
		l.requeue = append(l.requeue, t.Put())
	}
	l.mu.Unlock()
	l.handOn(q)
}

// takeOver gives the next goroutine of the process the ticket of the last.
func (l *line) takeOver(q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own, l.missing = q.ticket, 0
}

// served runs after a claim, which has deleted its ticket.
func (l *line) served() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = table.Ticket{}
}

// handOn leaves its ticket to the next goroutine of its process, or to the last one that leaves the queue.
func (l *line) handOn(q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := table.Table{Store: l.Store}
	var writes []table.Write
	for _, own := range l.tickets() {
		writes = append(writes, own.Delete())
	}
	q.handOn(l.own, func() {
		ctx, cancel := context.WithTimeout(context.Background(), elect.Attempt(l.lease))
		defer cancel()
		// A ticket that stays costs those behind it its grace, once.
		_ = elect.Insist(ctx, l.clock, l.lease, func(ctx context.Context) error { return t.Queue(ctx, writes...) })
	})
}
