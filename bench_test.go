//go:build unix

package spindle_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/spindletest"
)

// Machines differ, so the results are numbers of RPCs and ratios to the lease. One iteration takes one lease or one
// failover. CONTRIBUTING.md has the commands.

const benchLease = 2 * time.Second

var quiet = spindle.WithLogger(slog.New(slog.DiscardHandler))

// rpcs counts the RPCs of a client.
type rpcs struct{ all, reads, commits atomic.Int64 }

func (c *rpcs) add(method string) {
	c.all.Add(1)
	switch method {
	case "/google.spanner.v1.Spanner/StreamingRead":
		c.reads.Add(1)
	case "/google.spanner.v1.Spanner/Commit":
		c.commits.Add(1)
	}
}

func (c *rpcs) counted() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				c.add(method)
				return invoke(ctx, method, req, reply, cc, opts...)
			})),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				c.add(method)
				return stream(ctx, desc, cc, method, opts...)
			})),
	}
}

func BenchmarkHasLock(b *testing.B) { benchHasLock(b) }

func BenchmarkHasLockWithMetrics(b *testing.B) {
	benchHasLock(b, fleet.NewReports().Options())
}

func benchHasLock(b *testing.B, opts ...spindle.Option) {
	var c rpcs
	db := spindletest.New(b)
	l := stand(b, connect(b, db, c.counted()...), db, append(opts, spindle.WithLease(time.Hour))...)
	eventually(b, 10*time.Second, "election", l.has)
	before := c.all.Load()
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if ok, _ := l.HasLock(); !ok {
			b.Fatal("lost")
		}
	}
	b.ReportMetric(float64(c.all.Load()-before), "rpcs")
}

// BenchmarkAtRest runs a leader and a follower while nothing happens. Each iteration takes one lease.
func BenchmarkAtRest(b *testing.B) {
	var leading, following rpcs
	db := spindletest.New(b)
	leader := stand(b, connect(b, db, leading.counted()...), db, spindle.WithLease(benchLease))
	eventually(b, 10*time.Second, "election", leader.has)
	follower := stand(b, connect(b, db, following.counted()...), db, spindle.WithLease(benchLease))
	eventually(b, 10*time.Second, "a look", func() bool { return follower.saw(spindle.LeaderSeen) })
	l, lc, f := leading.all.Load(), leading.commits.Load(), following.all.Load()
	b.ResetTimer()
	for b.Loop() {
		time.Sleep(benchLease)
	}
	n := float64(b.N)
	b.ReportMetric(float64(leading.all.Load()-l)/n, "leader-rpcs/lease")
	b.ReportMetric(float64(leading.commits.Load()-lc)/n, "leader-commits/lease")
	b.ReportMetric(float64(following.all.Load()-f)/n, "follower-rpcs/lease")
}

// leases are durations in leases, which are reported as their median and their maximum.
type leases []float64

func (l *leases) add(d, lease time.Duration) { *l = append(*l, d.Seconds()/lease.Seconds()) }

func (l leases) report(b *testing.B) {
	slices.Sort(l)
	b.ReportMetric(l[len(l)/2], "median-leases")
	b.ReportMetric(l[len(l)-1], "worst-leases")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkKill measures the time from kill -9 of the leader's process until HasLock is true in the next one.
func BenchmarkKill(b *testing.B) {
	for _, n := range []int{3, 20} {
		b.Run(fmt.Sprint(n, "candidates"), func(b *testing.B) {
			failover(b, n, candidate{}, func(c *cluster, leader *process) time.Time { return c.kill(leader) })
		})
	}
}

// BenchmarkTerminate measures the time from SIGTERM of the leader's process until HasLock is true in the next one.
func BenchmarkTerminate(b *testing.B) {
	failover(b, 3, candidate{}, func(c *cluster, leader *process) time.Time { return c.signal(leader, syscall.SIGTERM) })
}

// BenchmarkHandover measures the time between two leaders that run with WithHandover. It begins when HasLock was last
// true in the leader that gets SIGTERM, and ends when HasLock is first true in the next one.
func BenchmarkHandover(b *testing.B) {
	for _, n := range []int{3, 20} {
		b.Run(fmt.Sprint(n, "candidates"), func(b *testing.B) {
			failover(b, n, candidate{Handover: true}, func(c *cluster, leader *process) time.Time {
				return c.says(leader, "unheld", c.signal(leader, syscall.SIGTERM)).time()
			})
		})
	}
	b.Run("100candidates", handOverAmongHundred)
}

func failover(b *testing.B, n int, base candidate, end func(*cluster, *process) time.Time) {
	base.Name, base.Lease = "mylock", benchLease
	c := newCluster(b, spindletest.New(b), base)
	for range n {
		c.says(c.start(), "started", time.Time{})
	}
	leader, held := c.elected(time.Time{})
	var took leases
	for b.Loop() {
		// Wait until the candidates have settled, and for a random instant between two heartbeats.
		time.Sleep(time.Until(held.time().Add(benchLease + rand.N(benchLease/3))))
		ended := end(c, leader)
		leader, held = c.elected(ended)
		took.add(held.time().Sub(ended), benchLease)
		c.says(c.start(), "started", time.Time{})
	}
	took.report(b)
}

// BenchmarkHundredCandidates runs a hundred candidates in one process. It measures the time from the instant at which
// Spanner stops receiving the holder's writes until HasLock is true in the next holder. It fails if there are two
// holders at the same time.
func BenchmarkHundredCandidates(b *testing.B) {
	db := spindletest.New(b)
	var dead atomic.Int64 // the number of the candidate that was cut off
	var deadRow atomic.Value
	deadRow.Store("")
	lossy := onCommit(func(ctx context.Context, tag string, values []string) error {
		if slices.Contains(values, deadRow.Load().(string)) || slices.Contains(values, fmt.Sprint("candidate-", dead.Load())) {
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		}
		return nil
	})
	dead.Store(-1)
	h := hundredCandidates(b, db, lossy)
	var took leases
	for b.Loop() {
		time.Sleep(benchLease + rand.N(benchLease/3))
		old := h.holder(b)
		deadRow.Store(fmt.Sprintf("mylock_%d", h[old].token()))
		dead.Store(int64(old))
		start := time.Now()
		eventually(b, time.Minute, "takeover", func() bool { now := h.holder(b); return now >= 0 && now != old })
		took.add(time.Since(start), benchLease)
	}
	took.report(b)
}

// hundred is a hundred candidates in this process.
type hundred []*standing

func hundredCandidates(b *testing.B, db *spindletest.Database, client option.ClientOption, opts ...spindle.Option) hundred {
	// There is one client for every five candidates because the emulator, unlike Spanner, ends a client's transaction
	// when the same client begins another.
	var clients [20]*spanner.Client
	for i := range clients {
		clients[i] = connect(b, db, client)
	}
	var h hundred
	for i := range 100 {
		h = append(h, stand(b, clients[i%len(clients)], db, append(opts, spindle.WithLease(benchLease), spindle.WithID(fmt.Sprint("candidate-", i)))...))
	}
	eventually(b, time.Minute, "election", func() bool { return h.holder(b) >= 0 })
	return h
}

// holder returns the number of the candidate that leads, or -1.
func (h hundred) holder(b *testing.B) int {
	found := -1
	for i, l := range h {
		if l.has() {
			if found >= 0 && h[found].has() && l.has() {
				b.Fatal("two holders")
			}
			found = i
		}
	}
	return found
}

func handOverAmongHundred(b *testing.B) {
	h := hundredCandidates(b, spindletest.New(b), onCommit(func(context.Context, string, []string) error { return nil }), spindle.WithHandover())
	var took leases
	for b.Loop() {
		time.Sleep(benchLease + rand.N(benchLease/3))
		old := h.holder(b)
		go func() { _ = h[old].StepDown(context.Background()) }()
		eventually(b, time.Minute, "stop", func() bool { return !h[old].has() })
		start := time.Now()
		eventually(b, time.Minute, "takeover", func() bool { return h.holder(b) >= 0 })
		took.add(time.Since(start), benchLease)
	}
	took.report(b)
}

// onCommit calls f before each Commit RPC with the RPC's tag and all strings that the commit writes, keys first.
func onCommit(f func(ctx context.Context, tag string, values []string) error) option.ClientOption {
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if r, ok := req.(*sppb.CommitRequest); ok {
				var values []string
				for _, m := range r.GetMutations() {
					for _, w := range []*sppb.Mutation_Write{m.GetInsert(), m.GetUpdate()} {
						for _, row := range w.GetValues() {
							for _, v := range row.GetValues() {
								values = append(values, v.GetStringValue())
							}
						}
					}
				}
				if err := f(ctx, r.GetRequestOptions().GetTransactionTag(), values); err != nil {
					return err
				}
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
}

// gaps records the longest time between two heartbeats of one lease row.
type gaps struct {
	mu    sync.Mutex
	last  map[string]time.Time
	worst time.Duration
}

func (g *gaps) beat(_ context.Context, tag string, values []string) error {
	if tag != "spindle-heartbeat" {
		return nil
	}
	leaseRow := values[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last == nil {
		g.last = map[string]time.Time{}
	}
	now := time.Now()
	if last, ok := g.last[leaseRow]; ok {
		g.worst = max(g.worst, now.Sub(last))
	}
	g.last[leaseRow] = now
	return nil
}

// BenchmarkThousandLocks runs a process that holds a thousand locks. Each iteration takes one lease.
func BenchmarkThousandLocks(b *testing.B) {
	const n = 1000
	const lease = 10 * time.Second
	db := spindletest.New(b)
	var gaps gaps
	client := connect(b, db, onCommit(gaps.beat))
	before := heap()
	ctx, cancel := context.WithCancel(context.Background())
	var ls []*spindle.Lock
	done := make(chan error, n)
	for i := range n {
		l := spindle.New(client, db.Table, fmt.Sprintf("lock-%d", i), spindle.WithLease(lease), quiet)
		require.NoError(b, l.Run(ctx, done))
		ls = append(ls, l)
	}
	all := func() bool {
		return !slices.ContainsFunc(ls, func(l *spindle.Lock) bool { ok, _ := l.HasLock(); return !ok })
	}
	start := time.Now()
	require.Eventually(b, all, 2*time.Minute, 10*time.Millisecond)
	elected := time.Since(start)
	perLock := float64(heap()-before) / n
	b.ResetTimer()
	for b.Loop() {
		time.Sleep(lease)
		require.True(b, all(), "a lock was lost")
	}
	b.ReportMetric(gaps.worst.Seconds()/lease.Seconds(), "worst-gap-leases")
	b.ReportMetric(perLock, "bytes/lock")
	b.ReportMetric(elected.Seconds(), "election-s")
	b.ReportMetric(0, "ns/op")
	cancel()
	for range n {
		require.NoError(b, <-done)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
