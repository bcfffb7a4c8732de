package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

func BenchmarkUncontended(b *testing.B) {
	db := spindletest.New(b)
	client, rpcs := counted(b, db)
	m := lock.New(client, db.Table, "m", quiet)
	require.NoError(b, m.Lock(b.Context()))
	require.NoError(b, m.Unlock(b.Context()))
	before := rpcs.Load()
	for b.Loop() {
		require.NoError(b, m.Lock(b.Context()))
		require.NoError(b, m.Unlock(b.Context()))
	}
	b.ReportMetric(float64(rpcs.Load()-before)/float64(b.N), "rpcs/op")
}

// BenchmarkUncontendedElector measures the same with a loop that is started and stopped.
func BenchmarkUncontendedElector(b *testing.B) {
	db := spindletest.New(b)
	client, rpcs := counted(b, db)
	cycle := func() {
		elected := make(chan struct{})
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		l := spindle.New(client, db.Table, "m", quiet, spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { close(elected); <-ctx.Done() }))
		require.NoError(b, l.Run(ctx, done))
		<-elected
		stop()
		require.NoError(b, <-done)
	}
	cycle()
	before := rpcs.Load()
	for b.Loop() {
		cycle()
	}
	b.ReportMetric(float64(rpcs.Load()-before)/float64(b.N), "rpcs/op")
}

// BenchmarkAll has 20 callers, each of one of 10 overlapping sets of 5 out of 25 names, and runs until all have had
// their turns. A deadlock would show as a timeout.
func BenchmarkAll(b *testing.B) {
	db := spindletest.New(b)
	var sets [10][]string
	for i := range sets {
		for _, k := range rand.Perm(25)[:5] {
			sets[i] = append(sets[i], fmt.Sprint("thing-", k))
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	clients := clientsOf(b, db, 4)
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for caller := range 20 {
		all.Add(1)
		go func() {
			defer all.Done()
			s := lock.All(clients[caller%len(clients)], db.Table, sets[caller%10], quiet)
			for left.Add(-1) >= 0 {
				if err := lock.Do(ctx, s, func(context.Context) error { return nil }); err != nil {
					b.Error(err)
				}
			}
		}()
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "sets/s")
}

// BenchmarkSemaphore has 30 callers for 3 slots. It fails if there are more than 3 holders at the same instant.
func BenchmarkSemaphore(b *testing.B) {
	db := spindletest.New(b)
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	clients := clientsOf(b, db, 6)
	var left, holders atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	start := time.Now()
	for caller := range 30 {
		all.Add(1)
		go func() {
			defer all.Done()
			s := lock.NewSemaphore(clients[caller%len(clients)], db.Table, "s", 3, quiet)
			for left.Add(-1) >= 0 {
				p, err := s.Acquire(ctx)
				if err != nil {
					b.Error(err)
					return
				}
				if n := holders.Add(1); n > 3 {
					b.Errorf("%d holders", n)
				}
				time.Sleep(time.Millisecond)
				holders.Add(-1)
				if err := p.Release(ctx); err != nil {
					b.Error(err)
				}
			}
		}()
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "permits/s")
}

func clientsOf(b *testing.B, db *spindletest.Database, n int) []*spanner.Client {
	var clients []*spanner.Client
	for range n {
		client, _ := counted(b, db)
		clients = append(clients, client)
	}
	return clients
}
