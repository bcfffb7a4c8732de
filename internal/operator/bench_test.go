package operator_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/spindletest"
)

// received counts the bytes that a client receives.
type received struct{ atomic.Int64 }

func (*received) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*received) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*received) HandleConn(context.Context, stats.ConnStats)                       {}
func (r *received) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, is := s.(*stats.InPayload); is {
		r.Add(int64(in.WireLength))
	}
}

// BenchmarkListBeside lists the held locks in a table with many released locks. An elector leaves one row and a mutex
// leaves two. The case "all" includes the released locks, and in the case "by keys" Spanner returns them too.
func BenchmarkListBeside(b *testing.B) {
	for _, is := range []struct{ held, released, mutexes int }{{100, 0, 0}, {100, 10_000, 0}, {100, 100_000, 0}, {100, 0, 100_000}, {3_000, 0, 0}} {
		db := spindletest.New(b)
		in := &received{}
		client, err := spanner.NewClientWithConfig(context.Background(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true},
			append(db.ClientOptions(), option.WithGRPCDialOption(grpc.WithStatsHandler(in)))...)
		require.NoError(b, err)
		b.Cleanup(client.Close)
		insertLocks(b, db, is.held, is.released, is.mutexes)
		tab := table.Table{Store: table.Spanner{DB: client, Table: db.Table}}
		for what, list := range map[string]func() (int, error){
			"held": func() (int, error) {
				found, _, err := operator.ListWith(b.Context(), tab, "", false)
				return len(found), err
			},
			"by keys": func() (int, error) {
				rows, _, err := tab.Store.Read(b.Context(), "list", table.Present, table.Keys{All: true})
				return len(rows), err
			},
			"all": func() (int, error) {
				found, _, err := operator.List(b.Context(), tab, "", true)
				return len(found), err
			},
		} {
			b.Run(fmt.Sprintf("held=%d/released=%d/mutexes=%d/%s", is.held, is.released, is.mutexes, what), func(b *testing.B) {
				before, n, best := in.Load(), 0, time.Hour
				for b.Loop() {
					began := time.Now()
					var err error
					n, err = list()
					require.NoError(b, err)
					best = min(best, time.Since(began))
				}
				b.ReportMetric(float64(best.Microseconds())/1000, "ms-best")
				b.ReportMetric(float64(in.Load()-before)/float64(b.N)/1024, "KiB/list")
				b.ReportMetric(float64(n), "found")
			})
		}
	}
}

func insertLocks(b *testing.B, db *spindletest.Database, held, released, mutexes int) {
	now := time.Now().Truncate(time.Microsecond)
	since, lock := now.Add(-48*time.Hour), 0
	columns := []string{"name", "heartbeat", "token", "writer"}
	put := func(rows []*spanner.Mutation, name string, heartbeat any, writer any) []*spanner.Mutation {
		return append(rows, spanner.Insert(db.Table, columns, []any{name, heartbeat, since, writer}))
	}
	for lock < held+released+mutexes {
		var rows []*spanner.Mutation
		for range min(5000, held+released+mutexes-lock) {
			switch lock++; {
			case lock <= held:
				name := fmt.Sprintf("lock-%07d", lock)
				rows = put(rows, name, now, "host-1/4711/0c3f7c6e-8f0e-4e0b-9d57-1f4b7a4f2f11")
				rows = put(rows, table.LeaseKey(name, table.TokenAt(since)), now, `{"v":1,"lease":"1h0m0s","id":"host-1/4711/0c3f7c6e-8f0e-4e0b-9d57-1f4b7a4f2f11","kind":"elector"}`)
			case lock <= held+released:
				rows = put(rows, fmt.Sprintf("invoice-%07d", lock), nil, nil)
			default:
				name := fmt.Sprintf("order-%07d", lock)
				rows = put(rows, name, nil, nil)
				rows = put(rows, table.LeaseKey(name, table.TokenAt(since)), since, `{"v":1,"lease":"10s","free":true}`)
			}
		}
		_, err := db.Client.Apply(b.Context(), rows)
		require.NoError(b, err)
	}
}
