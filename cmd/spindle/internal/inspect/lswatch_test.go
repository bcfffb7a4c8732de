package inspect

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// watched is a table with locks that are held, and ls --watch -o json --state held on it.
type watched struct {
	store *memstore.Store
	out   bytes.Buffer
	ls    listing
	names []string
}

func heldLocks(t *testing.T, n int) *watched {
	w := &watched{store: &memstore.Store{}}
	w.ls = listing{Database: &connect.Database{Timeout: time.Second, Path: "projects/p/instances/i/databases/d", Table: "locktable"}, by: choice{"name", orderNames}, every: time.Second}
	require.NoError(t, w.ls.f.Set("json"))
	w.ls.show.states.values = []operator.State{operator.Held}
	for i := range n {
		w.names = append(w.names, fmt.Sprintf("lock-%02d", i))
	}
	w.write(t, table.Insert)
	return w
}

// write inserts or deletes the rows of all locks.
func (w *watched) write(t *testing.T, kind table.Kind) {
	var writes []table.Write
	token := time.Unix(946684800-3600, 0) // an hour before a bubble begins
	for _, name := range w.names {
		lock, lease := table.Write{Kind: kind, Name: name}, table.Write{Kind: kind, Name: table.LeaseKey(name, table.TokenAt(token))}
		if kind == table.Insert {
			lock.Set = []table.Cell{{Column: table.ColToken, Value: token}, {Column: table.ColHeartbeat, Value: time.Now()}, {Column: table.ColWriter, Value: "web-1"}}
			lease.Set = []table.Cell{{Column: table.ColToken, Value: token}, {Column: table.ColWriter, Value: `{"lease":"1h"}`}}
		}
		writes = append(writes, lock, lease)
	}
	require.NoError(t, w.store.Commit(t.Context(), "test", writes))
}

// next returns the lines since the last call.
func (w *watched) next() []string {
	defer w.out.Reset()
	return strings.Split(strings.TrimSuffix(w.out.String(), "\n"), "\n")
}

// ls --watch prints once that a lock is not selected any more, even if these are too many to read one by one. It does not
// print unchanged locks.
func TestAWatchedListSaysWhatIsNotInItAnyMore(t *testing.T) {
	for _, n := range []int{2, few + 10} {
		synctest.Test(t, func(t *testing.T) {
			w := heldLocks(t, n)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.ls.repeat(ctx, &terminal.Terminal{Writer: &w.out}, table.Table{Store: w.store}) }()
			synctest.Wait()
			assert.Len(t, w.next(), n)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.Equal(t, []string{""}, w.next(), "nothing has changed")
			w.write(t, table.Delete)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			gone := w.next()
			if assert.Len(t, gone, n) {
				assert.Regexp(t, `^{"name":"lock-00","state":"free","at":"2000-01-01T00:00:\d\d`, gone[0])
			}
			stop()
			assert.NoError(t, <-done)
		})
	}
}

// The first look has to succeed. Later looks continue through an outage, which ls reports once.
func TestAWatchedListGoesOnThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := heldLocks(t, 1)
		var down atomic.Bool
		store := table.Via(func(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
			if down.Load() {
				return commandtest.Away
			}
			return do(ctx, w.store)
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		said := commandtest.Complaints(func() {
			go func() { done <- w.ls.repeat(ctx, &terminal.Terminal{Writer: &w.out}, table.Table{Store: store}) }()
			synctest.Wait()
			for _, is := range []bool{true, false, true, false} {
				down.Store(is)
				time.Sleep(100 * time.Second)
				synctest.Wait()
			}
			stop()
			assert.NoError(t, <-done)
		})
		assert.Len(t, said, 4)
		assert.Len(t, w.next(), 1, "the lock was held all the time")
		down.Store(true)
		assert.ErrorIs(t, w.ls.repeat(t.Context(), &terminal.Terminal{Writer: &w.out}, table.Table{Store: store}), commandtest.Away)
	})
}
