package table

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// slotsOf is the end of the name of a semaphore's queue. The names of the semaphore's slots have four more digits.
const slotsOf = "/slot/"

// queuesOf returns the queues for a lock: its own queue and, if it is a slot, the queue of its semaphore.
func queuesOf(name string) []string {
	queues := []string{name}
	if i := strings.LastIndex(name, slotsOf); i >= 0 {
		if digits := name[i+len(slotsOf):]; len(digits) == 4 && strings.Trim(digits, "0123456789") == "" {
			queues = append(queues, name[:i+len(slotsOf)])
		}
	}
	return queues
}

// queuesBelow returns a key prefix for reading the tickets of all locks whose names begin with prefix. Other tickets
// may have the same key prefix. queuesBelow reports false if prefix is so long that the names of all these queues are
// hashed.
func queuesBelow(prefix string) (string, bool) {
	if i := strings.LastIndex(prefix, slotsOf); i >= 0 {
		prefix = prefix[:i+len(slotsOf)] // the name of a semaphore's queue has no digits
	}
	escaped := url.PathEscape(prefix)
	return ticketPrefix + escaped, len(escaped) <= MaxName
}

// queued contains the tickets that one poll has read and that have not lapsed, by the key prefixes of their queues.
type queued map[string][]Row

// queuedIn separates the tickets from the other rows, which were read at the time at.
func queuedIn(rows []Row, at time.Time) (others []Row, q queued) {
	q = queued{}
	for _, row := range rows {
		if !IsTicket(row.Name) {
			others = append(others, row)
			continue
		}
		if content(row).Lapsed(at) {
			continue
		}
		if queue, _, ok := strings.Cut(row.Name[len(ticketPrefix):], "/"); ok {
			key := ticketPrefix + queue + "/"
			q[key] = append(q[key], row)
		}
	}
	return others, q
}

// of returns the tickets of a queue.
func (q queued) of(queue string) []Ticket { return Tickets(queue, q[queuePrefix(queue)]) }

// locks returns the queues of each lock in names, which must be sorted. A semaphore's queue is listed under the first
// of its slots in names. If a queue belongs to a lock that is not in names but begins with prefix, locks adds the lock.
func (q queued) locks(names []string, prefix string) map[string][]string {
	all, known := map[string][]string{}, map[string]bool{}
	if len(q) == 0 {
		return all
	}
	for _, name := range names {
		for _, queue := range queuesOf(name) {
			if key := queuePrefix(queue); !known[key] {
				known[key] = true
				all[name] = append(all[name], queue)
			}
		}
	}
	for key := range q {
		queue, ok := queueOf(key)
		if !ok || known[key] || len(q.of(queue)) == 0 {
			continue
		}
		name := queue
		if strings.HasSuffix(queue, slotsOf) {
			name += "0000"
		}
		if strings.HasPrefix(name, prefix) && CheckKey(name) == nil {
			all[name] = append(all[name], queue)
		}
	}
	return all
}

// attach adds the waiters in the given queues to the listing of a lock.
func (l *Listing) attach(q queued, queues []string) {
	for _, queue := range queues {
		l.Waiters = append(l.Waiters, q.of(queue)...)
	}
	slices.SortStableFunc(l.Waiters, func(a, b Ticket) int { return cmp.Compare(a.Time, b.Time) })
}

// LongestWait returns how long the first waiter has waited, or 0 if there are no waiters.
func (l Listing) LongestWait() time.Duration {
	if len(l.Waiters) == 0 {
		return 0
	}
	return max(l.At.Sub(l.Waiters[0].Time.Time()), 0)
}

// tickets reads the tickets of all locks with the prefix and of the named locks. The tickets may come from a different
// snapshot than the locks, because the protocol does not rely on tickets.
func (t Table) tickets(ctx context.Context, prefix string, names map[string]bool) (all []Row, err error) {
	if below, ok := queuesBelow(prefix); ok {
		if all, _, err = t.Store.Read(ctx, "list", Present, Keys{All: true, Prefix: below}); err != nil {
			return nil, err
		}
	}
	var hashed []Range
	for name := range names {
		for _, queue := range queuesOf(name) {
			if r := Waiting(queue, ""); strings.HasPrefix(r.From, ticketPrefix+hashMark) {
				hashed = append(hashed, r)
			}
		}
	}
	if len(hashed) == 0 {
		return all, nil
	}
	rows, _, err := t.Store.Read(ctx, "list", Present, Keys{Ranges: hashed})
	return slices.Concat(all, rows), err
}

// further reads and lists locks that the first read omitted because they are not held.
func (t Table) further(ctx context.Context, names []string, about time.Time) (all []Listing, err error) {
	for some := range slices.Chunk(names, pruneBatch) {
		keys := withLeases(some, about)
		for _, name := range some {
			keys.Names = append(keys.Names, name+doneSuffix)
		}
		rows, at, err := t.Store.Read(ctx, "list", Present, keys)
		if err != nil {
			return nil, err
		}
		all = append(all, list(some, at, rows)...)
	}
	return all, nil
}

// listQueued is like list, but also lists the waiters of each lock. It adds locks that have waiters but are not in
// names. If reading is set, the first read has omitted some rows, so listQueued reads the rows of the locks that it
// adds.
func (t Table) listQueued(ctx context.Context, prefix string, names map[string]bool, at time.Time, rows []Row, q queued, reading bool) ([]Listing, error) {
	queues := q.locks(slices.Sorted(maps.Keys(names)), prefix)
	var others []string
	for name := range queues {
		if !names[name] {
			others = append(others, name)
		}
	}
	var found []Listing
	if slices.Sort(others); reading {
		var err error
		if found, err = t.further(ctx, others, at); err != nil {
			return nil, err
		}
	} else {
		found = list(others, at, rows)
	}
	found = append(list(slices.Sorted(maps.Keys(names)), at, rows), found...)
	for i := range found {
		found[i].attach(q, queues[found[i].Name])
	}
	slices.SortFunc(found, func(a, b Listing) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// StaleTickets yields the writes that delete abandoned tickets, in batches of up to 200, which can be passed to Queue.
// A ticket counts as abandoned if it has lapsed or, if it does not say when it lapses, if it was last written more than
// MaxLease ago. If its waiter is still running, the waiter writes the ticket again.
func (t Table) StaleTickets(ctx context.Context) iter.Seq2[[]Write, error] {
	return func(yield func([]Write, error) bool) {
		for last, full := ticketPrefix, true; full; {
			rows, at, err := t.Store.Read(ctx, "prune", Present, Keys{All: true, Prefix: ticketPrefix, After: last, Limit: page})
			if err != nil {
				yield(nil, err)
				return
			}
			var stale []Write
			for _, row := range rows {
				last = row.Name
				if t := content(row); t.Lapsed(at) || t.Lasts == 0 && at.Sub(t.Beat) > MaxLease {
					stale = append(stale, Write{Kind: Delete, Name: row.Name})
				}
			}
			for some := range slices.Chunk(stale, pruneBatch) {
				if !yield(some, nil) {
					return
				}
			}
			full = len(rows) == page
		}
	}
}
