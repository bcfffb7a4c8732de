package view

import (
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
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// watched is a table with locks that are held, and ls --watch --state held on it.
type watched struct {
	store *memstore.Store
	out   fleet.Log
	read  int // how much of out has been read
	ls    listing
	names []string
	at    terminal.Terminal
}

func heldLocks(t *testing.T, n int) *watched {
	w := &watched{store: &memstore.Store{}}
	w.ls = listing{Database: &connect.Database{Timeout: time.Second, Path: "projects/p/instances/i/databases/d", Table: "locktable"}, by: choice{"state", orderNames}}
	w.ls.selected.states = []operator.State{operator.Held}
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

func (w *watched) repeat(ctx context.Context, store table.Store) error {
	return w.ls.follow(func() *terminal.Terminal {
		at := w.at
		at.Writer = &w.out
		return &at
	}).follow(ctx, table.Table{Store: store})
}

// next returns what was written since the last call.
func (w *watched) next() string {
	all := w.out.String()
	text := all[w.read:]
	w.read = len(all)
	return text
}

// Elsewhere than on a terminal, the list is printed again only if it has changed, even if nothing is left of it. On a
// terminal, it is redrawn at each read, and the first of the list are not scrolled off the screen.
func TestAWatchedListIsPrintedAgainIfItHasChanged(t *testing.T) {
	for _, at := range []terminal.Terminal{{}, {IsTerminal: true, Width: 80, Height: 10}} {
		synctest.Test(t, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			w := heldLocks(t, 30)
			w.at = at
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.repeat(ctx, w.store) }()
			synctest.Wait()
			first := w.next()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			again := w.next()
			w.write(t, table.Delete)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			gone := w.next()
			assert.Contains(t, gone, "as of 2000-01-01T00:00:12.000Z\nNo lock in the table is held.\n")
			if at.IsTerminal {
				assert.Equal(t, 5, strings.Count(again, terminal.Clear))
				assert.Regexp(t, "^\x1b\\[H\x1b\\[Jas of 2000-01-01T00:00:00.000Z\nLOCK .*\n(lock-0[0-5] .*\n){6}24 more lines\n$", first)
			} else {
				assert.Empty(t, again)
				assert.Regexp(t, "^as of 2000-01-01T00:00:00.000Z\nLOCK .*\n(lock-.*\n){30}$", first)
				assert.Equal(t, 1, strings.Count(gone, "as of"))
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
			go func() { done <- w.repeat(ctx, store) }()
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
		assert.Equal(t, 1, strings.Count(w.next(), "as of"), "the lock was held all the time")
		down.Store(true)
		assert.ErrorIs(t, w.repeat(t.Context(), store), commandtest.Away)
	})
}
