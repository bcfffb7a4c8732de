package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// queue writes tickets as waiters do, more than a look reads, and looks at them in one read with a limit. The read must
// return the first rows of all requested ones, in the order of the keys.
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
			return "", outOfOrder("ticket %d of a queue is that of %q, at %d", i+1, t.ID, t.Time)
		}
	}
	if len(found) < table.MostTickets {
		return "", outOfOrder("of %d tickets a read with a limit returns %d", len(put), len(found))
	}
	return "who waits is seen, in the order in which they came", nil
}

func outOfOrder(format string, args ...any) error {
	return &finding{Warning, fmt.Sprintf(format, args...), "locks are safe, and those that wait for one of package lock have no order", "report it with this text"}
}

// tickets reads the queue until its first tickets are there. If reads are of the past, that takes a moment.
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
