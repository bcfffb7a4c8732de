package group_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/spindletest"
)

// Machines differ, so the results are counts and ratios to the lease. One iteration is one lease or one start.
// docs/performance.md has the commands.

var benchLease = flag.Duration("lease", 2*time.Second, "the lease of the members in benchmarks")

var quiet = spindle.WithLogger(slog.New(slog.DiscardHandler))

// run runs a member. Once the member has all n partitions, run returns a function that stops it.
func run(tb testing.TB, g *group.Group, n int) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	require.NoError(tb, g.Run(ctx, done))
	for late := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if len(g.Held()) == n {
			return func() { cancel(); require.NoError(tb, <-done) }
		}
		require.True(tb, time.Now().Before(late), "%d of %d partitions held", len(g.Held()), n)
	}
}

func BenchmarkHas(b *testing.B) {
	db := spindletest.New(b)
	g := group.New(db.Client, db.Table, "orders", group.Numbered(1000), spindle.WithLease(time.Hour), quiet)
	defer run(b, g, 1000)()
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if ok, _ := g.Has("17"); !ok {
			b.Fatal("lost")
		}
	}
}

// BenchmarkAtRest counts the RPCs of a member while nothing happens. Each iteration takes one lease.
func BenchmarkAtRest(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var rpcs atomic.Int64
			db := spindletest.New(b)
			count := []option.ClientOption{
				option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					rpcs.Add(1)
					return invoke(ctx, method, req, reply, cc, opts...)
				})),
				option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					rpcs.Add(1)
					return stream(ctx, desc, cc, method, opts...)
				})),
			}
			client, err := spanner.NewClientWithConfig(b.Context(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true}, append(count, db.ClientOptions()...)...)
			require.NoError(b, err)
			defer client.Close()
			defer run(b, group.New(client, db.Table, "orders", group.Numbered(n), spindle.WithLease(*benchLease), quiet), n)()
			time.Sleep(*benchLease)
			before := rpcs.Load()
			b.ResetTimer()
			for b.Loop() {
				time.Sleep(*benchLease)
			}
			b.ReportMetric(float64(rpcs.Load()-before)/float64(b.N), "rpcs/lease")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkStart measures the time from Run until one member holds all partitions, and the memory for each partition.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for i := range b.N {
				b.StopTimer()
				db := spindletest.New(b)
				before := heap()
				work := group.WithWork(func(ctx context.Context, _ group.Partition) error { <-ctx.Done(); return nil })
				b.StartTimer()
				g := group.New(db.Client, db.Table, fmt.Sprint("orders", i), group.Numbered(n), quiet, work)
				stop := run(b, g, n)
				b.StopTimer()
				b.ReportMetric(float64(heap()-before)/float64(n), "bytes/partition")
				stop()
				b.StartTimer()
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
