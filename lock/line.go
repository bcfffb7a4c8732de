package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/table"
)

// line is a waiter's place in the queues for the locks that it wants. The place belongs to the whole process, and its
// goroutines pass it on to each other.
//
// A line is also the Store of the waiter's candidate, so that queueing needs no extra requests. Each poll also reads
// the tickets, and each claim also deletes the waiter's own tickets and those of the waiters that it passes.
//
// The methods are called by the waiter's goroutine, but an attempt that was abandoned when ctx ended may still be
// running. That is why line has a mutex.
type line struct {
	table.Store
	wanted

	mu sync.Mutex
	queued
	shown
	wait    time.Duration  // how long the waiter leaves a free lock to other waiters
	writing sync.WaitGroup // counts the writes of attend that have not ended
	leaves  []table.Write  // the tickets that the next claim deletes
	requeue []table.Write  // the tickets that the release writes
}

// wanted describes what the waiter wants.
type wanted struct {
	clock  elect.Clock
	lease  time.Duration
	locks  int // the number of locks that each poll reads
	queues []string
	beside []string // the names of other rows that each poll reads
	enters func(queue, before int)
	admit  func(context.Context) (leave func(), err error) // waits until it may write tickets
	ticket table.Ticket                                    // the contents of its tickets, except for the queue
}

// queued is the waiter's own ticket.
type queued struct {
	own     table.Ticket // without a nonce if there is none
	missing int          // how many times it was written again because it was gone
	gone    bool         // the last renewal did not find it
}

// shown is what the polls have shown.
type shown struct {
	ends  []string      // the last row of each queue that the poll reads
	seen  []fair.Line   // one for each queue, as of the last poll; nil if it failed
	rows  []table.Row   // the rows of beside
	at    time.Time     // the time of the last poll, by Spanner's clock
	ended elect.Instant // when the reply to the last poll arrived
	took  time.Duration
	free  map[string]since // since when each lock has been seen to be free
}

type since struct {
	token table.Token
	at    time.Time
}

// stand puts a waiter in line for the queues. own is the ticket that the waiter's process already has, if any.
func (s *contender) stand(w *waiting, own table.Ticket, queues ...string) {
	w.patience = elect.Patience{Clock: s.config.Clock, Lease: s.config.Lease}
	w.ticket.ID, w.ticket.Set = s.config.ID, len(queues) > 1
	w.ticket.Lasts = table.LastsFor(s.config.Lease, w.ticket.Set)
	w.line = &line{Store: w.watch.Table(s.table).Store,
		wanted: wanted{clock: s.config.Clock, lease: s.config.Lease, locks: max(len(queues), w.ticket.Slots), queues: queues, beside: w.beside,
			enters: w.watch.Queued, admit: s.config.Enter, ticket: w.ticket},
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

// ranges returns the key ranges of the tickets that the next poll reads. If a queue was too long to be read completely,
// the range ends at the last ticket that the previous poll read.
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

// learn remembers the rows that a poll has read, and returns the ones that the caller asked for.
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
		l.seen = append(l.seen, fair.Line{Own: l.self(q, tickets), Tickets: tickets, End: end, At: at})
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

// self returns the waiter's own ticket in a queue. If the waiter has no ticket yet, self returns the ticket that it
// would have.
func (l *line) self(queue string, read []table.Ticket) table.Ticket {
	self := l.ticket
	self.Queue, self.Time, self.Nonce, self.Lasts = queue, l.own.Time, l.own.Nonce, 0
	if i := slices.IndexFunc(read, self.Same); i >= 0 {
		self.Beat, self.Lasts = read[i].Beat, read[i].Lasts
	}
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

// further returns the writes to the queues that are added to a commit.
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

// turn returns how long the waiter must leave free locks to the waiters ahead of it. If the result is zero or negative,
// the waiter can claim the locks. The claim then also deletes the waiter's own tickets and those of the waiters that it
// passes.
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

// leave makes the next claim also delete these tickets.
func (l *line) leave(tickets []table.Ticket) {
	for _, t := range tickets {
		l.leaves = append(l.leaves, t.Delete())
	}
}

// slot is like turn, but for semaphores. It returns which of the free slots the waiter can claim, or how long the
// waiter must wait. A waiter that has no ticket yet chooses its slot at random, because such waiters do not know of
// each other.
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
		l.leave(q.Lapsed())
		l.leave(l.tickets())
		if l.own.Nonce == "" {
			slot = int(l.clock.Random(time.Duration(len(free))))
		}
	}
	l.wait = wait
	return slot, wait, ok
}

// freeIn returns how long the waiters in a queue have been able to claim a lock. If the lock has no row, it is not
// known when the lock became free. The time then counts from when the last of the waiters ahead arrived, because none
// of them has claimed the lock since.
func (l *line) freeIn(q fair.Line, s elect.LockView) time.Duration {
	free := l.freeFor(s)
	if before := q.Before(); !s.Exists && len(before) > 0 {
		last := slices.MaxFunc(before, func(a, b table.Ticket) int { return a.Beat.Compare(b.Beat) })
		free = max(free, s.At.Sub(last.Beat))
	}
	return free
}

// freeFor returns how long a lock has been free. This is the time that the lock's rows show, or the time since this
// waiter first saw the lock free, whichever is longer.
func (l *line) freeFor(s elect.LockView) time.Duration {
	known, ok := l.free[s.Name]
	if !ok || known.token != s.Token {
		known = since{s.Token, s.At}
		l.free[s.Name] = known
	}
	return max(s.FreeFor, s.At.Sub(known.at))
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
	d, err := table.DoneIn(l.rows)
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

// pause returns the time until the waiter's next poll. ago is how long before the last poll the locks changed hands.
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

// tickets returns the waiter's own tickets, one for each queue.
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
		written <- l.wrote(table.Table{Store: l.Store}.Queue(ctx, writes...))
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
	case l.own.Ready && (!was || l.at.Sub(l.own.Beat) >= l.own.Grace), l.at.Sub(l.own.Beat) >= l.own.Lasts/3:
		write = table.Ticket.Renew
	default:
		return writes
	}
	l.own.Beat, l.gone = l.at, false
	for _, t := range l.tickets() {
		writes = append(writes, write(t))
	}
	for _, q := range l.seen {
		for _, t := range q.Lapsed() {
			writes = append(writes, t.Delete())
		}
	}
	return writes
}

// isFirst reports whether a set is first in all its queues. If a lock is free and the waiters ahead of the set do not claim
// it, they may have died. After a while, the set is allowed to overtake them and then counts as first in that queue. No
// other waiter may be left to remove the dead waiters' tickets.
func (l *line) isFirst(seen []elect.LockView) bool {
	for i, q := range l.seen {
		passes := seen[i].FreeIn <= 0 && q.Wait(l.freeIn(q, seen[i]), l.clock.Random) <= 0
		if !passes && (len(q.Before()) > 0 || q.Beyond()) {
			return false
		}
	}
	return true
}

// take gives the waiter a new ticket with the time at.
func (l *line) take(nonce string, at table.Token) {
	l.own = l.ticket
	l.own.Time, l.own.Nonce, l.own.Grace, l.own.Beat = at, nonce, min(l.pace().Grace(), table.MaxGrace), at.Time()
	l.missing = 0
}

// goToTheEnd makes the release also write a new ticket at the end of the queue, for the next goroutine of the process.
// The ticket has no key, because it is not known which key that goroutine wants. The ticket's time is Spanner's time at
// the last poll, plus the time that has passed since then by the monotonic clock.
func (l *line) goToTheEnd(q *queue) {
	l.mu.Lock()
	l.take(q.id(l.clock), table.TokenAt(l.at.Add(l.clock.Now().Ran(l.ended))))
	l.own.Key = ""
	for _, t := range l.tickets() {
		l.requeue = append(l.requeue, t.Put())
	}
	l.mu.Unlock()
	l.handOn(q, false)
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
	var writes []table.Write
	for _, own := range l.tickets() {
		writes = append(writes, own.Delete())
	}
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
			return table.Table{Store: l.Store}.Queue(ctx, writes...)
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
