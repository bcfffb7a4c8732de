package table_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// However long the queues of a set are, a poll finds the lock's rows and the first tickets of each queue. One request is
// enough while the queues are short, because every waiter polls several times per lease.
func TestAPollFindsTheFirstTicketsOfEachQueue(t *testing.T) {
	lengths := []int{0, 1, table.MostTickets - 1, table.MostTickets, table.MostTickets + 1, 3 * table.MostTickets, 300}
	for _, first := range lengths {
		for _, second := range lengths {
			for _, third := range []int{0, 40, 300} {
				link := &memstore.Link{Store: &memstore.Store{}}
				tab := table.Table{Store: link}
				held := hold(t, tab, "m", time.Hour)
				var beside table.Beside
				var writes []table.Write
				sizes := map[string]int{"a": first, "b": second, "c": third}
				for _, queue := range []string{"a", "b", "c"} {
					beside.Queues = append(beside.Queues, table.Waiting(queue, ""))
					for i := range sizes[queue] {
						writes = append(writes, table.Ticket{Queue: queue, Time: table.Token(i + 1), Nonce: "n"}.Put())
					}
				}
				require.NoError(t, tab.Queue(t.Context(), writes...))
				link.Counts()
				seen, err := tab.Beside(&beside).Observe(t.Context(), "m")
				require.NoError(t, err)
				assert.Equal(t, held, seen[0].Token)
				what := fmt.Sprintf("%d, %d and %d tickets", first, second, third)
				for queue, n := range sizes {
					found := table.Tickets(queue, beside.Rows)
					require.GreaterOrEqual(t, len(found), min(n, table.MostTickets), "%s: %s", what, queue)
					for i := range min(n, table.MostTickets) {
						require.Equal(t, table.Token(i+1), found[i].Time, "%s: %s", what, queue)
					}
				}
				if reads := readsOf(link); len(writes) < 100+2*table.MostTickets*3 {
					assert.Equal(t, 1, reads, what)
				}
			}
		}
	}
}

// bounds notes the bound of each read, and makes each take a second.
type bounds struct {
	table.Store
	all []table.Bound
	at  map[string]time.Time // when each row was read last
}

func (b *bounds) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	time.Sleep(time.Second)
	rows, at, err := b.Store.Read(ctx, step, bound, keys)
	for _, row := range rows {
		b.at[row.Name] = at
	}
	b.all = append(b.all, bound)
	return rows, at, err
}

// However many requests a poll takes because of long queues, all have its bound, and what it shows of a lock is dated as the snapshot
// that the lock's rows come from, all of which it has. With an earlier date, a heartbeat would seem to be younger than it is; without
// the lease record, a long lease would seem to have expired.
func TestThePartsOfAPollAreReadAsTheWhole(t *testing.T) {
	for _, bound := range []table.Bound{table.Present, table.Strong} {
		for _, long := range []int{0, 1, 3} {
			synctest.Test(t, func(t *testing.T) {
				b := &bounds{Store: &memstore.Store{}, at: map[string]time.Time{}}
				tab := table.Table{Store: b}
				hold(t, tab, "m", time.Hour)
				beside := table.Beside{Names: []string{"m!done"}}
				for _, queue := range []string{"a", "b", "c"}[:long] {
					beside.Queues = append(beside.Queues, table.Waiting(queue, ""))
					for i := range 500 {
						require.NoError(t, tab.Queue(t.Context(), table.Ticket{Queue: queue, Time: table.Token(i + 1), Nonce: "n"}.Put()))
					}
				}
				keys := table.Keys{Names: []string{"m"}, Ranges: []table.Range{{From: "m_", To: "m_z"}}}
				short, err := tab.Read(t.Context(), "observe", bound, keys)
				require.NoError(t, err)
				assert.Len(t, short.All, 2, "a lock row and its lease row")
				b.all = nil
				rows, err := tab.Beside(&beside).Read(t.Context(), "observe", bound, keys)
				require.NoError(t, err)
				assert.Subset(t, rows.All, short.All)
				assert.Equal(t, b.at["m"], rows.At, "%d long queues", long)
				assert.Equal(t, rows.At, beside.At)
				assert.Equal(t, slices.Repeat([]table.Bound{bound}, len(b.all)), b.all)
				assert.Equal(t, long > 0, len(b.all) > 1)
			})
		}
	}
}

// Only the slot of a semaphore has the semaphore's queue. Otherwise, the semaphore's waiters would be listed with a lock that merely has
// a similar name.
func TestOnlyASlotHasTheQueueOfASemaphore(t *testing.T) {
	for name, queue := range map[string]string{
		"pool/slot/0000": "pool/slot/", "pool/slot/0042": "pool/slot/", "a/slot/0001/slot/0002": "a/slot/0001/slot/", "/slot/0000": "/slot/",
		"pool/slot/side": "", "pool/slot/00x1": "", "pool/slot/001": "", "pool/slot/00001": "", "pool/slot/": "", "pool/slots/0001": "", "0001": "", "": "",
	} {
		assert.Equal(t, queue, table.QueueOfSlot(name), "%q", name)
	}
}
