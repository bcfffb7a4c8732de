package table_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/memtable"
	"github.com/spindle-lock/spindle/internal/table"
)

func release(t *testing.T, tab table.Table, name string) {
	t.Helper()
	require.NoError(t, tab.Release(t.Context(), hold(t, tab, name, time.Hour), name))
}

// prune deletes what was released for older, and returns the names.
func prune(t *testing.T, tab table.Table, older time.Duration) (names []string) {
	t.Helper()
	for seen, err := range tab.Released(t.Context(), older) {
		require.NoError(t, err)
		n, err := tab.Prune(t.Context(), seen...)
		require.NoError(t, err)
		require.Len(t, seen, n)
		for _, o := range seen {
			names = append(names, o.Name)
		}
	}
	return names
}

// Age counts from the release, however long the term was, and only rows of released locks go.
func TestOnlyLocksThatWereReleasedLongAgoArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memtable.Store{}
		tab := table.Table{Store: store}
		release(t, tab, "old")
		require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Put, Name: "nightly!done", Set: []table.Cell{{Column: table.ColToken, Value: table.Now}}}}))
		release(t, tab, "withdrawn")
		withdrawn := claim(t, tab, "withdrawn")
		long := hold(t, tab, "long", time.Hour)
		hold(t, tab, "held", 24*time.Hour)
		hold(t, tab, "expired", time.Second)
		claim(t, tab, "bare")
		release(t, tab, "odd") // and somebody gave it a lease row
		require.NoError(t, store.Commit(t.Context(), "test", []table.Write{{Kind: table.Insert, Name: table.LeaseKey("odd", 17),
			Set: []table.Cell{{Column: table.ColToken, Value: table.Now}}}}))
		time.Sleep(time.Hour + time.Millisecond)
		require.NoError(t, tab.Withdraw(t.Context(), withdrawn, "withdrawn"))
		require.NoError(t, tab.Release(t.Context(), long, "long"))
		before := store.Rows()

		assert.Equal(t, []string{"old"}, prune(t, tab, time.Hour))
		after := store.Rows()
		delete(before, "old")
		assert.Equal(t, before, after)

		time.Sleep(time.Hour + time.Millisecond)
		assert.Equal(t, []string{"long", "withdrawn"}, prune(t, tab, time.Hour))
	})
}

// However many rows there are, each is found, whatever page and batch it is in.
func TestEveryOldLockOfALargeTableIsPruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memtable.Store{}
		tab := table.Table{Store: store}
		const n, each = 100_000, 99 // two full pages
		var writes []table.Write
		for i := range n {
			released := time.Now()
			if i%each == 0 {
				released = released.Add(-time.Hour)
			}
			writes = append(writes, table.Write{Kind: table.Insert, Name: fmt.Sprintf("invoice-%d", i),
				Set: []table.Cell{{Column: table.ColToken, Value: released}}})
		}
		require.NoError(t, store.Commit(t.Context(), "test", writes))
		assert.Len(t, prune(t, tab, time.Hour), n/each+1)
		assert.Len(t, store.Rows(), n-n/each-1)
	})
}

// A lock that is claimed after it was seen keeps its rows, and so does one that was released again since.
func TestPruneLeavesALockThatWasClaimedMeanwhile(t *testing.T) {
	for _, again := range []string{"claimed", "held", "released"} {
		synctest.Test(t, func(t *testing.T) {
			store := &memtable.Store{}
			tab := table.Table{Store: store}
			release(t, tab, "a")
			release(t, tab, "b")
			for seen, err := range tab.Released(t.Context(), 0) {
				require.NoError(t, err)
				require.Len(t, seen, 2)
				switch again {
				case "claimed":
					claim(t, tab, "a")
				case "held":
					hold(t, tab, "a", time.Second)
				case "released":
					release(t, tab, "a")
				}
				before := store.Rows()
				n, err := tab.Prune(t.Context(), seen...)
				require.NoError(t, err)
				assert.Equal(t, 1, n)
				delete(before, "b")
				assert.Equal(t, before, store.Rows(), again)

				n, err = tab.Prune(t.Context(), seen...)
				require.NoError(t, err)
				assert.Zero(t, n)
			}
		})
	}
}

// contended aborts each transaction that touches the lock "busy".
type contended struct{ table.Store }

func (c contended) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return c.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		for _, w := range writes {
			if w.Name == "busy" {
				return nil, table.ErrAborted
			}
		}
		return writes, err
	})
}

// A lock that others compete for does not keep the rest of its batch.
func TestPruneGoesOnBesideALockThatIsContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memtable.Store{}
		tab := table.Table{Store: store}
		for i := range 20 {
			release(t, tab, fmt.Sprint(i))
		}
		release(t, tab, "busy")
		for seen, err := range (table.Table{Store: contended{store}}).Released(t.Context(), 0) {
			require.NoError(t, err)
			n, err := table.Table{Store: contended{store}}.Prune(t.Context(), seen...)
			require.NoError(t, err)
			assert.Equal(t, 20, n)
		}
		assert.Len(t, store.Rows(), 1)
	})
}
