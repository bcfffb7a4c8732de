package spindlegocron_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/adapters/gocron"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/lock"
)

// lockerOn returns a machine's locker on a table in memory.
func lockerOn(link *memstore.Link, process string, log *bytes.Buffer) gocron.Locker {
	return spindlegocron.NewLocker(nil, "locktable", "tests", lock.KeyOf("2026-11-21T03:00:00Z"), spindle.WithLease(lease),
		spindle.WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))),
		options.Option(func(c *options.Config) { c.Store, c.Process = link, process }))
}

// A scheduler that shuts down before Lock has returned does not run the job and leaves it to another machine, whichever
// request was in progress, and Lock says why ctx has ended. Once Lock has returned, the end of ctx changes nothing: the job keeps its lock, and counts as
// done.
func TestALockerHeedsTheEndOfCtxUntilTheJobBegins(t *testing.T) {
	for end, begun := int64(1), false; !begun; end++ {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			store := &memstore.Store{}
			link := &memstore.Link{Store: store}
			ctx, cancel := context.WithCancelCause(context.Background())
			shutdown := errors.New("shutdown")
			defer cancel(nil)
			var requests atomic.Int64
			link.After(func(string) {
				if requests.Add(1) == end {
					cancel(shutdown)
				}
			})
			a, b := lockerOn(link, "a", &log), lockerOn(&memstore.Link{Store: store}, "b", &log)
			own, err := a.Lock(ctx, "job")
			begun = requests.Load() < end
			if !begun {
				require.ErrorIs(t, err, shutdown, "after %d requests", end)
				other, err := b.Lock(context.Background(), "job")
				require.NoError(t, err)
				require.NoError(t, other.Unlock(context.Background()))
				return
			}
			require.NoError(t, err)
			cancel(shutdown)
			denied := make(chan error, 1)
			go func() {
				_, err := b.Lock(context.Background(), "job")
				denied <- err
			}()
			time.Sleep(3 * lease)
			assert.Empty(t, denied, "another machine does not wait")
			assert.NoError(t, own.Unlock(ctx))
			assert.ErrorIs(t, <-denied, spindlegocron.ErrDone)
			assert.Empty(t, log.String(), "a job that is not told to stop is not late")
		})
	}
}

// If a job could not be recorded as done, Unlock says so, whether the lock has been lost by then or not. Another machine may
// run the job again.
func TestAnUnlockThatFailsIsReported(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			link := &memstore.Link{Store: &memstore.Store{}}
			held, err := lockerOn(link, "a", &log).Lock(t.Context(), "job")
			require.NoError(t, err)
			link.Cut()
			if lost {
				time.Sleep(2 * lease)
			}
			err = held.Unlock(t.Context())
			assert.Error(t, err, lost)
			assert.Equal(t, lost, errors.Is(err, lock.ErrNotHeld), "%v", err)
			assert.Equal(t, err, held.Unlock(t.Context()), "the second call")
		})
	}
}
