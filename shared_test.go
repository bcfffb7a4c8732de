package spindle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A thousand locks of one process that share their requests cost at most ten commits a lease, no lock waits longer for its
// heartbeat than it would alone, and what happens to one happens to no other.
func TestAThousandLocksShareTheirHeartbeats(t *testing.T) {
	fleet.Bubble(t, func(t *testing.T) {
		const n, lease = 1000, 10 * time.Second
		memory := &memstore.Store{}
		var heartbeats atomic.Int64
		store := table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
			if step == "heartbeat" {
				heartbeats.Add(1)
			}
			time.Sleep(5 * time.Millisecond)
			return call(ctx, memory)
		})
		requests := &batch.Requests{}
		start, stop := sharing(t, lease, func(c *options.Config) { c.Store, c.Requests = store, requests })
		var locks []*spindle.Lock
		for i := range n {
			locks = append(locks, start(1, fmt.Sprintf("lock-%04d-", i))...)
			time.Sleep(lease / n) // they are elected all over a lease
		}
		time.Sleep(2 * lease)
		before := heartbeats.Load()
		const leases = 4
		oldest := time.Duration(0)
		for range leases * 25 {
			time.Sleep(lease / 25)
			for name, row := range memory.Rows() {
				if !strings.Contains(name, "_") { // no lease row
					oldest = max(oldest, time.Since(row.Heartbeat))
				}
			}
		}
		perLease := float64(heartbeats.Load()-before) / leases
		t.Logf("%.1f commits a lease; the oldest heartbeat was sent %.3f leases before", perLease, oldest.Seconds()/lease.Seconds())
		assert.LessOrEqual(t, perLease, 10.0)
		assert.Less(t, oldest, lease*4/10, "a third of the lease, and what a request takes")

		var tokens []spindle.Token
		for _, l := range locks {
			_, token := l.HasLock()
			tokens = append(tokens, token)
		}
		lost := memory.Rows()["lock-0500-0"]
		err := memory.Commit(t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: table.LeaseKey("lock-0500-0", table.TokenAt(lost.Token))}})
		require.NoError(t, err)
		time.Sleep(lease / 2)
		for i, l := range locks {
			has, now := l.HasLock()
			assert.True(t, has || i == 500, "lock-%04d", i)
			assert.Equal(t, i != 500, now == tokens[i], "lock-%04d", i)
		}
		require.NoError(t, stop())
	})
}

// sharing returns a function that starts so many locks that share their requests, and one that stops all of them.
func sharing(t *testing.T, lease time.Duration, seam options.Option) (start func(n int, name string) []*spindle.Lock, stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var dones []chan error
	start = func(n int, name string) (locks []*spindle.Lock) {
		for i := range n {
			l := spindle.New(nil, "locktable", fmt.Sprint(name, i), spindle.WithLease(lease), spindle.WithSharedRequests(), seam, spindle.WithLogger(slog.New(slog.DiscardHandler)))
			done := make(chan error, 1)
			require.NoError(t, l.Run(ctx, done))
			locks, dones = append(locks, l), append(dones, done)
		}
		return locks
	}
	return start, func() (err error) {
		cancel()
		for _, done := range dones {
			err = errors.Join(err, <-done)
		}
		return err
	}
}

// Heartbeats are sent when they are due, whatever else is in flight: within a fiftieth of the lease, even if hundreds of claims
// are not answered for a lease.
func TestHeartbeatsDoNotWaitForClaims(t *testing.T) {
	fleet.Bubble(t, func(t *testing.T) {
		const holders, claimants, lease = 50, 500, 10 * time.Second
		memory := &memstore.Store{}
		var hang atomic.Bool
		var beats, late atomic.Int64
		began := time.Now()
		store := table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
			switch {
			case step == "claim" && hang.Load():
				time.Sleep(lease)
				return table.ErrAborted
			case step == "heartbeat":
				beats.Add(1)
				if past := time.Since(began) % (lease / 3); past > lease/50 { // all are due at multiples of a third of the lease
					late.Add(1)
				}
			}
			time.Sleep(5 * time.Millisecond)
			return call(ctx, memory)
		})
		requests := &batch.Requests{}
		start, stop := sharing(t, lease, func(c *options.Config) { c.Store, c.Requests, c.Clock = store, requests, bubbleClock{began: began} })
		held := start(holders, "held-")
		time.Sleep(lease)
		hang.Store(true)
		start(claimants, "wanted-")
		time.Sleep(10 * lease)
		assert.Positive(t, beats.Load())
		assert.Zero(t, late.Load())
		for _, l := range held {
			has, _ := l.HasLock()
			assert.True(t, has)
		}
		hang.Store(false)
		_ = stop()
	})
}

// bubbleClock is a system clock whose monotonic clock began with the test.
type bubbleClock struct {
	elect.SystemClock
	began time.Time
}

func (c bubbleClock) Now() elect.Instant {
	now := time.Now()
	return elect.Instant{Wall: now.UnixNano(), Mono: int64(now.Sub(c.began))}
}
