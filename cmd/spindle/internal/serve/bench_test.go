//go:build unix

package serve

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// A fleet is a table of locks that are all held, with heartbeats each third of a lease.
type fleet struct {
	table.Store
	rows  []table.Row
	began time.Time
	reads atomic.Int64
}

func newFleet(locks int) *fleet {
	f := &fleet{began: time.Now().Add(-time.Hour)}
	for i := range locks {
		f.rows = append(f.rows, held(fmt.Sprintf("shard/%04d", i), fmt.Sprintf("host-%d/4711/0c3f7c6e-8f0e-4e0b-9d57-1f4b7a4f2f11", i%40), fmt.Sprintf("http://10.0.0.%d:8080", i%40), f.began, f.began)...)
	}
	return f
}

// Read implements table.Store.
func (f *fleet) Read(context.Context, string, table.Bound, table.Keys) ([]table.Row, time.Time, error) {
	f.reads.Add(1)
	now := time.Now()
	rows := make([]table.Row, len(f.rows))
	copy(rows, f.rows)
	const beat = lease / 3
	for i := 0; i < len(rows); i += 2 {
		phase := beat * time.Duration(i) / time.Duration(len(rows))
		rows[i].Heartbeat = f.began.Add(phase + (now.Sub(f.began) - phase).Truncate(beat)).Add(time.Microsecond)
	}
	return rows, now, nil
}

// BenchmarkManyPages: 5,000 locks, each with a heartbeat in three seconds, are shown on 50 pages for half a minute.
// The processor time has the 50 readers in it.
func BenchmarkManyPages(b *testing.B) {
	const locks, pages, during = 5000, 50, 30 * time.Second
	f := newFleet(locks)
	s := serverWith(Config{Every: time.Second}, f, time.Second)
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	for range b.N {
		ctx, cancel := context.WithCancel(b.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Watch(ctx) })
		running.Go(func() { _ = Serve(ctx, on, s.Handler()) })
		var told atomic.Int64
		for range pages {
			running.Go(func() {
				request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+on.Addr().String()+"/events", nil)
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					b.Error(err)
					return
				}
				defer response.Body.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := response.Body.Read(buffer)
					if told.Add(int64(n)); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(3 * time.Second) // the snapshots
		b.ReportMetric(float64(told.Load())/pages/1024, "KiB/page-opened")
		reads, bytes, cpu := f.reads.Load(), told.Load(), processorTime()
		time.Sleep(during)
		b.ReportMetric(float64(f.reads.Load()-reads)/during.Seconds(), "reads/s")
		b.ReportMetric(float64(told.Load()-bytes)/pages/during.Seconds()/1024, "KiB/s/page")
		b.ReportMetric(100*(processorTime()-cpu).Seconds()/during.Seconds(), "%CPU")
		cancel()
		running.Wait()
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLook is one look at 5,000 locks of which a third had a heartbeat, without the read.
func BenchmarkLook(b *testing.B) {
	f := newFleet(5000)
	s := serverWith(Config{Every: time.Second}, f, time.Second)
	for b.Loop() {
		if err := s.Look(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScrape is an answer to Prometheus about 5,000 locks.
func BenchmarkScrape(b *testing.B) {
	s := serverWith(Config{Every: time.Second}, newFleet(5000), time.Second)
	if err := s.Look(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w := &discard{header: http.Header{}}
		request, _ := http.NewRequest(http.MethodGet, "/metrics", nil)
		s.Handler().ServeHTTP(w, request)
		b.ReportMetric(float64(w.n)/1024, "KiB")
	}
}

type discard struct {
	header http.Header
	n      int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return io.Discard.Write(p) }

func processorTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
