package operate

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// slow returns a table behind a proxy that takes so long for each request.
func slow(s table.Store, takes func(request int) time.Duration) table.Table {
	requests := 0
	return table.Table{Store: table.Via(func(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
		requests++
		select {
		case <-time.After(takes(requests)):
			return do(ctx, s)
		case <-ctx.Done():
			return ctx.Err()
		}
	})}
}

const (
	releasedLocks = 1000
	timeout       = 10 * time.Second
)

func prunes(t *testing.T, locks table.Table) error {
	return (&pruning{Database: &database.Database{Timeout: timeout}, ages: operator.Ages{Released: time.Minute}}).run(t.Context(), locks)
}

// longReleased is a table of locks that were released.
func longReleased(t *testing.T) *memstore.Store {
	store := &memstore.Store{}
	var writes []table.Write
	for i := range releasedLocks {
		writes = append(writes, table.Write{Kind: table.Insert, Name: fmt.Sprintf("invoice-%04d", i),
			Set: []table.Cell{{Column: table.ColToken, Value: time.Now().Add(-time.Hour)}}})
	}
	require.NoError(t, store.Commit(t.Context(), "test", writes))
	return store
}

// The timeout is for each request: the batches of a large table take longer together.
func TestALargeTableIsPrunedThroughASlowProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := longReleased(t)
		began := time.Now()
		assert.NoError(t, prunes(t, slow(store, func(int) time.Duration { return timeout - time.Millisecond })))
		assert.Empty(t, store.Rows())
		assert.InDelta(t, 15*timeout, time.Since(began), float64(5*timeout), "there are five batches, of two requests at least")
	})
}

func TestARequestOfPruneThatIsNotAnsweredEndsIt(t *testing.T) {
	for last, left := range map[int]int{1: releasedLocks, 5: releasedLocks - 200} { // a page, and two requests for each batch
		synctest.Test(t, func(t *testing.T) {
			store := longReleased(t)
			hangs := slow(store, func(request int) time.Duration {
				if request == last {
					return time.Hour
				}
				return 0
			})
			began := time.Now()
			err := prunes(t, hangs)
			assert.ErrorContains(t, err, fmt.Sprintf("after %d locks: no answer within 10s", releasedLocks-left))
			assert.ErrorContains(t, err, "the database can't be reached")
			assert.Equal(t, timeout, time.Since(began))
			assert.Len(t, store.Rows(), left)
		})
	}
}
