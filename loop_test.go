package spindle

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/memtable"
	"github.com/spindle-lock/spindle/internal/table"
)

// onMemory returns a lock on a table in memory, for tests in virtual time.
func onMemory(store table.Store, opts ...Option) *Lock {
	c := newConfig(append([]Option{WithLogger(slog.New(slog.DiscardHandler))}, opts...))
	return &Lock{name: "mylock", config: c, err: c.err(), clock: systemClock{}, table: table.Table{Store: store}}
}

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memtable.Store{}
		a := onMemory(store, WithID("a"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		require.NoError(t, a.Run(ctx, done))
		synctest.Wait()
		ok, tok := a.HasLock()
		require.True(t, ok)
		t.Log(tok, store.Rows())
		time.Sleep(time.Hour)
		ok, tok2 := a.HasLock()
		require.True(t, ok)
		require.Equal(t, tok, tok2)
		cancel()
		require.NoError(t, <-done)
		t.Log(store.Rows())
	})
}
