package spindle_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// docs/performance.md has the commands. The time of takeovers and the requests at rest are measured by the program in bench.

var quiet = spindle.WithLogger(slog.New(slog.DiscardHandler))

// holding returns n locks on a table in memory, all of which are held.
func holding(b *testing.B, n int, opts ...spindle.Option) (locks []*spindle.Lock) {
	store := &memstore.Store{}
	opts = append(opts, quiet, options.Option(func(c *options.Config) { c.Store = store }))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, n)
	for i := range n {
		l := spindle.New(nil, "locktable", fmt.Sprint("lock-", i), opts...)
		require.NoError(b, l.Run(ctx, done))
		locks = append(locks, l)
	}
	b.Cleanup(func() {
		cancel()
		for range n {
			require.NoError(b, <-done)
		}
	})
	require.Eventually(b, func() bool { return held(locks) }, time.Minute, time.Millisecond)
	return locks
}

func held(locks []*spindle.Lock) bool {
	return !slices.ContainsFunc(locks, func(l *spindle.Lock) bool { has, _ := l.HasLock(); return !has })
}

func BenchmarkHasLock(b *testing.B) { benchHasLock(b) }

func BenchmarkHasLockWithMetrics(b *testing.B) { benchHasLock(b, fleet.NewReports().Options()) }

func benchHasLock(b *testing.B, opts ...spindle.Option) {
	l := holding(b, 1, append(opts, spindle.WithLease(time.Hour))...)[0]
	b.ReportAllocs()
	for b.Loop() {
		if has, _ := l.HasLock(); !has {
			b.Fatal("lost")
		}
	}
}

// BenchmarkThousandLocks runs a process that holds a thousand locks. Each iteration takes one lease.
func BenchmarkThousandLocks(b *testing.B) {
	const n, lease = 1000, 10 * time.Second
	before := heap()
	locks := holding(b, n, spindle.WithLease(lease))
	perLock := float64(heap()-before) / n
	oldest := time.Duration(0)
	for b.Loop() {
		for range 100 {
			time.Sleep(lease / 100)
			for _, l := range locks {
				_, age, ok := l.Seen()
				require.True(b, ok, "a lock was lost")
				oldest = max(oldest, age)
			}
		}
	}
	b.ReportMetric(oldest.Seconds()/lease.Seconds(), "oldest-heartbeat-leases")
	b.ReportMetric(perLock, "bytes/lock")
	b.ReportMetric(0, "ns/op")
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
