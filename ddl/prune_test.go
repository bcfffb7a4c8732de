package ddl_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// The row of a released lock goes, that of a held one stays, and the pruned lock is free at once, under a
// larger token.
func TestPruneRemovesWhatWasReleased(t *testing.T) {
	eachDialect(t, func(t *testing.T, db *spindletest.Database) {
		var old []spindle.Token
		for range 2 {
			gone, held := lock.New(db.Client, db.Table, "gone"), lock.New(db.Client, db.Table, "held")
			require.NoError(t, gone.Lock(t.Context()))
			require.NoError(t, held.Lock(t.Context()))
			old = append(old, gone.Token())
			require.NoError(t, gone.Unlock(t.Context()))

			n, err := ddl.Prune(t.Context(), db.Client, db.Table, time.Hour)
			require.NoError(t, err)
			require.Zero(t, n)
			n, err = ddl.Prune(t.Context(), db.Client, db.Table, 0)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			_, err = db.Client.Single().ReadRow(t.Context(), db.Table, spanner.Key{"gone"}, []string{"name"})
			require.ErrorIs(t, err, spanner.ErrRowNotFound)
			require.NoError(t, held.Unlock(t.Context()))
		}
		require.Less(t, old[0], old[1])
	})
}

// No page of the table is left out.
func TestPruneCoversALargeTable(t *testing.T) {
	eachDialect(t, func(t *testing.T, db *spindletest.Database) {
		const n, each = 50_500, 99 // more than a page
		now := time.Now()
		var rows []*spanner.Mutation
		for i := range n {
			released := now
			if i%each == 0 {
				released = now.Add(-48 * time.Hour)
			}
			rows = append(rows, spanner.Insert(db.Table, []string{"name", "token"}, []any{fmt.Sprintf("invoice-%d", i), released}))
		}
		for rows := range slices.Chunk(rows, 10_000) {
			_, err := db.Client.Apply(t.Context(), rows)
			require.NoError(t, err)
		}
		pruned, err := ddl.Prune(t.Context(), db.Client, db.Table, 24*time.Hour)
		require.NoError(t, err)
		require.Equal(t, n/each+1, pruned)
		left := 0
		require.NoError(t, db.Client.Single().Read(t.Context(), db.Table, spanner.AllKeys(), []string{"name"}).Do(func(*spanner.Row) error { left++; return nil }))
		require.Equal(t, n-pruned, left)
	})
}

func TestPruneRefusesANegativeAge(t *testing.T) {
	_, err := ddl.Prune(t.Context(), nil, "locktable", -time.Second)
	require.ErrorContains(t, err, "must not be negative")
}
