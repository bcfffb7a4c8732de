package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// queue inserts tickets, as waiting processes do, and reads them back with a row limit that is smaller than the number
// of tickets. The read must return the first tickets, in key order.
func (e *exam) queue(ctx context.Context) (string, error) {
	name := e.base + "/queue"
	var put, remove []table.Write
	for i := range table.MostTickets + 8 {
		t := table.Ticket{Queue: name, Time: table.Token(i + 1), Nonce: "doctor", ID: e.base, Grace: time.Second, Lasts: table.LastsFor(0, false)}
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
			return "", outOfOrder("position %d of the queue has the wrong ticket, with ID %q and time %d", i+1, t.ID, t.Time)
		}
	}
	if len(found) < table.MostTickets {
		return "", outOfOrder("a read with a row limit returned only %[2]d tickets, although the queue has %[1]d", len(put), len(found))
	}
	return "reads return waiting processes in the order in which they arrived", nil
}

func outOfOrder(format string, args ...any) error {
	return &finding{Warning, fmt.Sprintf(format, args...), "locks are safe, but processes that wait for a lock from package lock may acquire it in any order", "report this output"}
}

// tickets reads the queue until it finds tickets. Reads can be slightly stale and miss the new tickets at first, so it
// retries for up to five seconds.
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
