package agent

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// onEmulator returns an agent on an emulated database, and counts its requests.
func onEmulator(b *testing.B) (bed *bed, db *spindletest.Database, requests *counter) {
	db, requests = spindletest.New(b), &counter{}
	store := table.Spanner{DB: db.Client, Table: db.Table}
	counted := table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
		requests.note(step)
		return call(ctx, store)
	})
	bed = onSocket(b, func(c *Config) { c.Locks, c.TableName, c.MaxHolds = table.Table{Store: counted}, db.Table, 10000 })
	return bed, db, requests
}

// counter counts requests, and records the longest time between two heartbeats.
type counter struct {
	all, looks atomic.Int64
	mu         sync.Mutex
	last       time.Time
	worst      time.Duration
}

func (c *counter) note(step string) {
	if step == "observe" {
		c.looks.Add(1)
		return
	}
	c.all.Add(1)
	if step != "heartbeat" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !c.last.IsZero() {
		c.worst = max(c.worst, now.Sub(c.last))
	}
	c.last = time.Now()
}

// BenchmarkFiveHundredHolds measures what an agent with 500 idle holds costs. One iteration takes one lease.
func BenchmarkFiveHundredHolds(b *testing.B) {
	const n, lease = 500, 2 * time.Second
	bed, _, requests := onEmulator(b)
	bed.asks("", "POST /v1/locks?name=warm&lease=2s").reads("held")
	idle := live()
	for i := range n { // they read nothing, so that their memory does not count
		_, err := fmt.Fprintf(bed.dial(""), "POST /v1/locks?name=%d&lease=%v HTTP/1.0\r\nHost: agent\r\n\r\n", i, lease)
		require.NoError(b, err)
	}
	require.Eventually(b, func() bool {
		_, j := bed.call("", "GET /v1/holds")
		return !slices.ContainsFunc(j["holds"].([]any), func(h any) bool { return h.(map[string]any)["state"] != "held" })
	}, patience, 100*time.Millisecond)
	time.Sleep(lease)
	perHold := float64(live() - idle)
	requests.all.Store(0)
	requests.worst = 0
	b.ResetTimer()
	for b.Loop() {
		time.Sleep(lease)
	}
	b.ReportMetric(float64(requests.all.Load())/float64(b.N), "RPCs/lease")
	b.ReportMetric(perHold/(1<<20), "MiB")
	b.ReportMetric(requests.worst.Seconds()/lease.Seconds()-1./3, "late-leases")
	b.ReportMetric(0, "ns/op")
	_, j := bed.call("", "GET /v1/holds")
	require.Len(b, j["holds"], n+1, "a lock was lost")
}

func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// BenchmarkLockAndRelease acquires and releases a free lock, alternately with the library and through the agent. They
// have to alternate because the emulator gets slower with each commit.
func BenchmarkLockAndRelease(b *testing.B) {
	bed, db, _ := onEmulator(b)
	m := lock.New(db.Client, db.Table, "library", spindle.WithLogger(slog.New(slog.DiscardHandler)))
	var library, agent time.Duration
	for b.Loop() {
		library += took(func() {
			require.NoError(b, m.Lock(context.Background()))
			require.NoError(b, m.Unlock(context.Background()))
		})
		agent += took(func() {
			s := bed.asks("", "POST /v1/locks?name=agent")
			status, _ := bed.call("", "POST /v1/holds/"+s.reads("held").Hold+"/release")
			require.Equal(b, 200, status)
			require.NoError(b, s.Close())
		})
	}
	b.ReportMetric(library.Seconds()*1000/float64(b.N), "library-ms")
	b.ReportMetric(agent.Seconds()*1000/float64(b.N), "agent-ms")
	b.ReportMetric(float64(agent)/float64(library), "agent/library")
	b.ReportMetric(0, "ns/op")
}

func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
