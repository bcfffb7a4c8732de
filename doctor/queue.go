package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// queue writes tickets as waiters do, more than one look reads, and then reads them in one read with a limit. The read
// must return the first rows of all the requested ranges, in key order.
func (e *exam) queue(ctx context.Context) (string, error) {
	name := e.base + "/queue"
	var put, remove []table.Write
	for i := range table.MostTickets + 8 {
		t := table.Ticket{Queue: name, Time: table.Token(i + 1), Nonce: "doctor", ID: e.base, Grace: time.Second}
		put, remove = append(put, t.Put()), append(remove, t.Delete())
	}
	if err := e.table.Queue(ctx, put...); err != nil {
		return "", err
	}
	found, err := e.tickets(ctx, name)
	if err == nil {
		err = e.table.Queue(ctx, remove...)
	}
	if err != nil {
		return "", err
	}
	for i, t := range found[:min(len(found), table.MostTickets)] {
		if t.Time != table.Token(i+1) || t.ID != e.base {
			return "", outOfOrder("ticket %d of a queue belongs to %q, at %d", i+1, t.ID, t.Time)
		}
	}
	if len(found) < table.MostTickets {
		return "", outOfOrder("a read with a limit returns %[2]d of %[1]d tickets", len(put), len(found))
	}
	return "waiters are seen in the order in which they arrived", nil
}

func outOfOrder(format string, args ...any) error {
	return &finding{Warning, fmt.Sprintf(format, args...), "locks are safe, but processes that wait for a lock from package lock get it in no particular order", "report this text"}
}

// tickets reads the queue until it finds tickets. It tries for a few seconds, because a slightly stale read does not
// show the new tickets.
func (e *exam) tickets(ctx context.Context, name string) ([]table.Ticket, error) {
	for start := time.Now(); ; e.pause(ctx, 100*time.Millisecond) {
		rows, _, err := e.table.Store.Read(ctx, "queue", table.Present, table.Keys{Ranges: []table.Range{table.Waiting(name, "")}, Limit: table.MostTickets})
		if err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		}
		if found := table.Tickets(name, rows); len(found) > 0 || time.Since(start) > 5*time.Second || ctx.Err() != nil {
			return found, nil
		}
	}
}
