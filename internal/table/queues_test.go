package table_test

import (
	"context"
	"fmt"
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

// asked remembers the keys of the last read.
type asked struct {
	table.Store
	keys table.Keys
}

func (a *asked) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	a.keys = keys
	return a.Store.Read(ctx, step, bound, keys)
}

// What a member finds of a partition does not depend on how many others it asks for in the same poll, or on which rows
// of other groups it reads besides.
func TestAPollOfManyPartitionsFindsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab := table.Table{Store: store}
		me := join(t, tab, 3, "me", time.Hour)
		var names []string
		for i := range 2001 {
			names = append(names, table.PartitionName("orders", fmt.Sprint(i)))
		}
		take(t, tab, me, time.Hour, "0", "7", "1999", "2000", "elsewhere")
		drop(t, tab, names[7])
		foreign := table.SlotName("other", 1)
		hold(t, tab, foreign, time.Hour)
		look := func(names ...string) table.GroupSnapshot {
			b := table.Beside{Names: []string{foreign}}
			s, err := tab.Beside(&b).LookAtGroup(t.Context(), "orders", table.GroupQuery{Members: true, Leases: []table.LeaseRef{me}, WithLeases: names})
			require.NoError(t, err)
			require.Len(t, s.Members, 1)
			require.Contains(t, s.Members, me.Name)
			require.True(t, s.LeaseExists[me])
			require.Len(t, s.Partitions, len(names))
			return s
		}
		asked := &asked{Store: store}
		_, err := table.Table{Store: asked}.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: names})
		require.NoError(t, err)
		assert.Len(t, asked.keys.Ranges, 1, "thousands of ranges would make the poll slow")
		all, most := look(names...), look(names[1:]...)
		require.Len(t, all.Partitions, 2001)
		for _, name := range names {
			one := look(name).Partitions[name]
			many := all.Partitions[name]
			one.At, many.At = time.Time{}, time.Time{}
			assert.Equal(t, one, many, name)
			if o, found := most.Partitions[name]; found {
				o.At = time.Time{}
				assert.Equal(t, one, o, name)
			}
		}
		assert.Len(t, all.Partitions[names[7]].OrphanLeases, 1)
		assert.NotNil(t, all.Partitions[names[2000]].LeaseRecord)
	})
}

// A mark stays until its partition is claimed. Without it, the members of a group would assign the partition again to
// the program that has paused it. A partition that is marked already costs no further commit.
func TestAMarkOfAPausedPartitionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab, name := table.Table{Store: store}, table.PartitionName("orders", "p")
		me, other := join(t, tab, 0, "me", time.Hour), join(t, tab, 1, "other", time.Hour)
		over := func(table.LeaseRef) bool { return true }
		take(t, tab, other, time.Hour, "p")
		marked, err := tab.MarkPaused(t.Context(), me, func(h table.LeaseRef) bool { return h != other }, name)
		require.NoError(t, err)
		assert.Empty(t, marked, "another member holds it")
		for range 2 {
			marked, err = tab.MarkPaused(t.Context(), me, over, name, "without a row")
			require.NoError(t, err)
			assert.Equal(t, []string{name, "without a row"}, marked)
		}
		before := store.Rows()
		assert.Equal(t, me.Key(), before[name].Writer)
		commits := 0
		store.OnCommit = func(string, time.Time, map[string]table.Row, map[string]table.Row) { commits++ }
		_, err = tab.MarkPaused(t.Context(), me, over, name)
		require.NoError(t, err)
		assert.Zero(t, commits)
		r, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: []string{name}})
		require.NoError(t, err)
		require.ErrorIs(t, tab.ReconcilePartitions(t.Context(), me, r.Partitions[name]), table.ErrChanged)
		assert.Equal(t, before, store.Rows())
		take(t, tab, other, time.Hour, "p")
		assert.Equal(t, other.Key(), store.Rows()[name].Writer)
	})
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
