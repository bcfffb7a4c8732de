package table_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

func claim(t *testing.T, tab table.Table, name string) table.Token {
	t.Helper()
	seen, err := tab.Observe(t.Context(), name)
	require.NoError(t, err)
	token, err := tab.Claim(t.Context(), name+"'s holder", seen...)
	require.NoError(t, err)
	return token
}

func hold(t *testing.T, tab table.Table, name string, lease time.Duration) table.Token {
	t.Helper()
	token := claim(t, tab, name)
	require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: lease, Value: "at " + name}, name))
	return token
}

func TestEveryLockIsListedOnceWithItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		hold(t, tab, "b", time.Second)
		released := hold(t, tab, "c", time.Second)
		require.NoError(t, tab.Release(t.Context(), released, "c"))
		orphan := hold(t, tab, "o", time.Second)
		require.NoError(t, tab.Store.Commit(t.Context(), "test", []table.Write{{Kind: table.Delete, Name: "o"}}))
		broken := hold(t, tab, "u", time.Second)
		require.NoError(t, tab.Store.Commit(t.Context(), "test", []table.Write{{Kind: table.Update, Name: table.LeaseKey("u", broken),
			Set: []table.Cell{{Column: table.ColWriter, Value: "?"}}}}))
		time.Sleep(time.Second)
		claim(t, tab, "d")
		a := hold(t, tab, "a", time.Second)
		hold(t, tab, "a_12", time.Second)

		all, _, err := tab.List(t.Context(), "", true)
		require.NoError(t, err)
		states := map[string]table.State{}
		for _, l := range all {
			states[l.Name] = l.State()
			one, err := tab.ListOne(t.Context(), l.Name)
			require.NoError(t, err)
			assert.Equal(t, l.State(), one.State(), l.Name)
			assert.Equal(t, l.LeaseRecord, one.LeaseRecord, l.Name)
		}
		assert.Len(t, all, len(states))
		assert.Equal(t, map[string]table.State{
			"a": table.Held, "a_12": table.Held, "b": table.Expired, "c": table.Released, "d": table.Unconfirmed,
			"o": table.Orphaned, "u": table.Unreadable,
		}, states)
		assert.Equal(t, "a", all[0].Name)
		assert.Equal(t, a, all[0].Token)
		assert.Equal(t, "at a", all[0].LeaseRecord.Value)
		assert.Contains(t, all[len(all)-2].OrphanLeases, orphan)

		busy, _, err := tab.List(t.Context(), "", false)
		require.NoError(t, err)
		assert.Len(t, busy, len(all)-1)
		assert.False(t, slices.ContainsFunc(busy, func(l table.Listing) bool { return l.State() == table.Released }))

		begins := func(prefix string) (names []string) {
			some, _, err := tab.List(t.Context(), prefix, true)
			require.NoError(t, err)
			for _, l := range some {
				names = append(names, l.Name+" "+string(l.State()))
			}
			return names
		}
		assert.Equal(t, []string{"a held", "a_12 held"}, begins("a"))
		assert.Equal(t, []string{"a_12 held"}, begins("a_"), "a's lease row begins with a_, and a does not")
		assert.Equal(t, []string{"a_12 held"}, begins("a_12"), "the prefix itself is a name")
		assert.Empty(t, begins("ab"))

		none, err := tab.ListOne(t.Context(), "none")
		require.NoError(t, err)
		assert.Equal(t, table.Free, none.State())
	})
}
