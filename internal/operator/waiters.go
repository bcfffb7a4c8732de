package operator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// queuesOf returns the queues for a lock: its own queue and, if it is a slot, the queue of its semaphore.
func queuesOf(name string) []string {
	if slots := table.QueueOfSlot(name); slots != "" {
		return []string{name, slots}
	}
	return []string{name}
}

// queues contains the tickets that have not expired, by the key prefix of their queue.
type queues map[string][]table.Ticket

func queuesIn(rows table.Rows) queues {
	q := queues{}
	for _, row := range rows.All {
		if t, prefix, ok := table.TicketOf(row); ok && !t.Expired(rows.At) {
			q[prefix] = append(q[prefix], t)
		}
	}
	return q
}

// waiters returns the tickets for each lock in names, which must be sorted. It lists the tickets of a semaphore only
// under the semaphore's first slot in names. If a lock has a queue but is not in names, it is included if its name
// begins with prefix.
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
		if strings.HasSuffix(name, table.Slots) {
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

// LongestWait returns how long the waiter that came first has been waiting, or 0 if there are no waiters.
func (l Listing) LongestWait() (longest time.Duration) {
	for _, t := range l.Waiters {
		longest = max(longest, l.At.Sub(t.Since()))
	}
	return longest
}
