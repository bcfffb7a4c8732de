package operator

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
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

// queues contains the tickets that have not lapsed, by the prefixes of the keys of their queues.
type queues map[string][]table.Ticket

// queuesIn returns the queues in rows that were read at a time.
func queuesIn(rows []table.Row, at time.Time) queues {
	q := queues{}
	for _, row := range rows {
		if t, prefix, ok := table.TicketOf(row); ok && !t.Lapsed(at) {
			q[prefix] = append(q[prefix], t)
		}
	}
	return q
}

// waiters returns the tickets for each lock in names, which must be sorted. A semaphore's queue is listed under the first
// of its slots in names. If a queue belongs to a lock that is not in names but begins with prefix, waiters adds the lock.
func (q queues) waiters(names []string, prefix string) map[string][]table.Ticket {
	all, known := map[string][]table.Ticket{}, map[string]bool{}
	if len(q) == 0 {
		return all
	}
	for _, name := range names {
		for _, queue := range queuesOf(name) {
			if key := table.QueuePrefix(queue); !known[key] && len(q[key]) > 0 {
				known[key] = true
				all[name] = append(all[name], q[key]...)
			}
		}
	}
	for key, tickets := range q {
		name := tickets[0].Queue
		if strings.HasSuffix(name, slotsOf) {
			name += "0000"
		}
		if !known[key] && strings.HasPrefix(name, prefix) && table.CheckKey(name) == nil {
			all[name] = append(all[name], tickets...)
		}
	}
	for _, tickets := range all {
		slices.SortFunc(tickets, func(a, b table.Ticket) int { return cmp.Or(a.Compare(b), cmp.Compare(a.Queue, b.Queue)) })
	}
	return all
}

// LongestWait returns how long the first waiter has waited, or 0 if there are no waiters.
func (l Listing) LongestWait() time.Duration {
	if len(l.Waiters) == 0 {
		return 0
	}
	return max(l.At.Sub(l.Waiters[0].Time.Time()), 0)
}

// readQueues returns the queues of all locks with the prefix and of the named locks. The argument rows was read with that
// prefix. Tickets may come from a different snapshot than the locks, because the protocol does not rely on tickets.
func readQueues(ctx context.Context, t table.Table, prefix string, names map[string]bool, rows table.Rows) (queues, error) {
	if prefix == "" {
		return queuesIn(rows.All, rows.At), nil
	}
	below := prefix
	if i := strings.LastIndex(prefix, slotsOf); i >= 0 {
		below = prefix[:i+len(slotsOf)] // the name of a semaphore's queue has no digits
	}
	reads := []table.Keys{{All: true, Prefix: table.TicketPrefix + url.PathEscape(below)}}
	if len(reads[0].Prefix) > len(table.TicketPrefix)+table.MaxName {
		reads = nil // the keys of all these queues have hashes
	}
	var hashed table.Keys
	for name := range names {
		for _, queue := range queuesOf(name) {
			if table.QueuePrefix(queue) != table.TicketPrefix+url.PathEscape(queue)+"/" {
				hashed.Ranges = append(hashed.Ranges, table.Waiting(queue, ""))
			}
		}
	}
	if len(hashed.Ranges) > 0 {
		reads = append(reads, hashed)
	}
	var tickets []table.Row
	for _, keys := range reads {
		some, _, err := t.Store.Read(ctx, "list", table.Present, keys)
		if err != nil {
			return nil, err
		}
		tickets = append(tickets, some...)
	}
	return queuesIn(tickets, rows.At), nil
}
