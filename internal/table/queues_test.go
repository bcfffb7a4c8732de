package table_test

import (
	"fmt"
	"testing"
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
