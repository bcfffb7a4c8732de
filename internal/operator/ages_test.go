package operator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A row is deleted from the microsecond on at which it is old enough. What is promised about ages is exact, because
// whatever is deleted too early may still be needed.
func TestRowsAreOldEnoughFromTheMomentOnThatIsPromised(t *testing.T) {
	const lease = 3 * time.Hour
	ages := operator.Ages{Released: 2 * time.Hour, Expired: 30 * time.Hour}
	oddLease := func(t *testing.T, tab table.Table) {
		require.NoError(t, tab.Store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Insert, Name: table.LeaseKey("l", 17), Set: []table.Cell{{Column: table.ColWriter, Value: `{"lease":"1s"}`}}}}))
	}
	for what, c := range map[string]struct {
		from string        // the row whose heartbeat, or token if it has none, is the beginning
		age  time.Duration // how old it has to be
		make func(t *testing.T, tab table.Table)
	}{
		"released": {"l", ages.Released, func(t *testing.T, tab table.Table) {
			require.NoError(t, tab.Release(t.Context(), hold(t, tab, "l", lease), "l"))
		}},
		"released with a free row": {"free", ages.Released, func(t *testing.T, tab table.Table) {
			require.NoError(t, tab.ReleaseFree(t.Context(), hold(t, tab, "l", lease), lease, "l"))
		}},
		"withdrawn": {"l", ages.Released, func(t *testing.T, tab table.Table) {
			require.NoError(t, tab.Withdraw(t.Context(), claim(t, tab, "l"), "l"))
		}},
		"broken": {table.BrokenRow("l"), table.MaxLease, func(t *testing.T, tab table.Table) {
			require.NoError(t, tab.Break(t.Context(), hold(t, tab, "l", lease), "l"))
		}},
		"claimed":  {"l", ages.Expired, func(t *testing.T, tab table.Table) { claim(t, tab, "l") }},
		"held":     {"l", ages.Expired + lease, func(t *testing.T, tab table.Table) { hold(t, tab, "l", lease) }},
		"no lease": {"l", ages.Expired, func(t *testing.T, tab table.Table) { drop(t, tab, table.LeaseKey("l", hold(t, tab, "l", lease))) }},
		"released with a free row and a lease row": {"", 0, func(t *testing.T, tab table.Table) {
			require.NoError(t, tab.ReleaseFree(t.Context(), hold(t, tab, "l", lease), lease, "l"))
			oddLease(t, tab)
		}},
		"released, and a lease row": {"", 0, func(t *testing.T, tab table.Table) {
			require.NoError(t, tab.Release(t.Context(), hold(t, tab, "l", lease), "l"))
			oddLease(t, tab)
		}},
		"held, and a lease row": {"", 0, func(t *testing.T, tab table.Table) {
			hold(t, tab, "l", lease)
			oddLease(t, tab)
		}},
		"a partition": {"", 0, func(t *testing.T, tab table.Table) { claim(t, tab, table.PartitionName("orders", "p")) }},
	} {
		for _, off := range []time.Duration{-time.Microsecond, 0, time.Microsecond, 1000 * time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				tab := table.Table{Store: store}
				c.make(t, tab)
				rows := store.Rows()
				row := rows[c.from]
				if c.from == "free" {
					row = rows[table.LeaseKey("l", table.TokenAt(rows["l"].Token))]
				}
				begin := row.Heartbeat
				if begin.IsZero() {
					begin = row.Token
				}
				if c.from == "" {
					begin = time.Now()
				}
				time.Sleep(time.Until(begin.Add(c.age + off)))
				assert.Equal(t, c.from != "" && off >= 0, len(prune(t, tab, ages)) == 1, "%s: %v", what, off)
			})
		}
	}
}

// A lock that was broken lately keeps its rows beside others that are pruned, wherever it is in their batch.
func TestALockThatWasBrokenLatelyIsKeptBesideOthers(t *testing.T) {
	names := []string{"a", "b", "c"}
	for broken := range 1 << len(names) {
		synctest.Test(t, func(t *testing.T) {
			tab := table.Table{Store: &memstore.Store{}}
			var want []string
			for i, name := range names {
				if broken>>i&1 == 1 {
					require.NoError(t, tab.Break(t.Context(), hold(t, tab, name, time.Hour), name))
				} else {
					release(t, tab, name)
					want = append(want, name)
				}
			}
			time.Sleep(time.Hour)
			assert.Equal(t, want, prune(t, tab, operator.Ages{}), "%03b", broken)
		})
	}
}
