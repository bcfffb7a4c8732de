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
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// watched is a table with locks that are held, and ls --watch --state held on it.
type watched struct {
	store memstore.Store
	out   fleet.Log
	read  int // how much of out has been read
	token table.Token
	names []string
}

func heldLocks(t *testing.T, n int) *watched {
	w := &watched{}
	for i := range n {
		w.names = append(w.names, fmt.Sprintf("lock-%02d", i))
	}
	locks := table.Table{Store: &w.store}
	seen, err := locks.Observe(t.Context(), w.names...)
	require.NoError(t, err)
	w.token, err = locks.Claim(t.Context(), "web-1", seen...)
	require.NoError(t, err)
	require.NoError(t, locks.Confirm(t.Context(), w.token, table.LeaseRecord{Lease: time.Hour}, w.names...))
	return w
}

func (w *watched) repeat(ctx context.Context, store table.Store, screen terminal.Terminal) error {
	ls := listing{Database: &database.Database{Timeout: time.Second, Path: "projects/p/instances/i/databases/d", Table: "locktable"}, by: terminal.Choice{Value: "state"}}
	ls.selected.states = []operator.State{operator.Held}
	screen.Writer = &w.out
	return ls.follow(func() *terminal.Terminal { return &screen }).follow(ctx, table.Table{Store: store})
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
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.repeat(ctx, &w.store, at) }()
			synctest.Wait()
			first := w.next()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			again := w.next()
			require.NoError(t, table.Table{Store: &w.store}.Release(t.Context(), w.token, w.names...))
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
			return do(ctx, &w.store)
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		said := commandtest.Complaints(func() {
			go func() { done <- w.repeat(ctx, store, terminal.Terminal{}) }()
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
		assert.ErrorIs(t, w.repeat(t.Context(), store, terminal.Terminal{}), commandtest.Away)
	})
}

// Watch reports a look that hangs, not only one that has failed. A look that is slow, but within its patience, is none.
func TestALookThatHangsIsSaidInWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		takes := []time.Duration{time.Hour, time.Second, 2 * time.Hour}
		f := &follower{Database: &database.Database{Timeout: 3 * time.Hour}, every: time.Second, patience: 2 * time.Second,
			show: func([]operator.Listing, time.Time) error { return nil },
			read: func(ctx context.Context, _ table.Table) ([]operator.Listing, time.Time, error) {
				if len(takes) == 0 {
					stop()
				} else {
					time.Sleep(takes[0])
					takes = takes[1:]
				}
				return nil, time.Now(), nil
			}}
		said := commandtest.Complaints(func() { assert.NoError(t, f.follow(ctx, table.Table{})) })
		require.Len(t, said, 4)
		assert.Contains(t, said[0], "no answer from Spanner for 2s\"")
		assert.Contains(t, said[2], "no answer from Spanner for 2s; the last output is as of 01:00:02Z")
		for _, i := range []int{1, 3} {
			assert.Contains(t, said[i], "the locks can be read again")
		}
	})
}
