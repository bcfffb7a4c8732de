package group_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/spindletest"
)

// reads calls before with the number of each read that a client sends, starting at 1.
type reads struct {
	grpc.ClientStream
	sent   *atomic.Int64
	before func(n int64)
}

func (r reads) SendMsg(m any) error {
	if _, ok := m.(*sppb.ReadRequest); ok {
		r.before(r.sent.Add(1))
	}
	return r.ClientStream.SendMsg(m)
}

// countReads returns a client for the database, and the number of reads that it has sent.
func countReads(t *testing.T, db *spindletest.Database, before func(n int64)) (*spanner.Client, *atomic.Int64) {
	sent := new(atomic.Int64)
	intercept := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		return reads{s, sent, before}, err
	}
	client, err := spanner.NewClientWithConfig(t.Context(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true},
		append(db.ClientOptions(), option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(intercept)))...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client, sent
}

// A view is of a single instant even if it takes more than one RPC. Otherwise a partition that moves between two pages
// would be shown with no member, or with two.
func TestAViewOfMoreRowsThanAPageIsOfOneInstant(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	const others = 50_000 // the partitions between the first and the last, which fill a page
	db := spindletest.New(t)
	since := time.Now().Add(-time.Minute).Truncate(time.Microsecond)
	row := func(name, writer string, token time.Time) *spanner.Mutation {
		return spanner.InsertOrUpdate(db.Table, []string{"name", "heartbeat", "token", "writer"}, []any{name, spanner.CommitTimestamp, token, writer})
	}
	lease := func(name string, token time.Time) string { return table.LeaseKey(name, table.TokenAt(token)) }
	with := func(partition string, token time.Time, member string) []*spanner.Mutation {
		name := table.PartitionName("orders", partition)
		return []*spanner.Mutation{row(name, member, token), row(lease(name, token), `{"with":"`+member+`","for":"1h"}`, token)}
	}
	write := func(ms []*spanner.Mutation) {
		for ms := range slices.Chunk(ms, 10_000) {
			_, err := db.Client.Apply(t.Context(), ms)
			require.NoError(t, err)
		}
	}

	var all []*spanner.Mutation
	var members []string
	for slot, id := range []string{"a", "b"} {
		name := table.SlotName("orders", slot)
		members = append(members, lease(name, since))
		all = append(all, row(name, id, since), row(members[slot], `{"lease":"1h","id":"`+id+`","plan":"p"}`, since))
	}
	first, last := "0", "9"
	all = append(all, append(with(first, since, members[0]), with(last, since, members[0])...)...)
	for i := range others {
		all = append(all, spanner.Insert(db.Table, []string{"name", "token"}, []any{table.PartitionName("orders", fmt.Sprintf("5-%05d", i)), since}))
	}
	write(all)

	move := func(n int64) {
		if n != 2 {
			return
		}
		var ms []*spanner.Mutation
		for _, p := range []string{first, last} {
			ms = append(ms, spanner.Delete(db.Table, spanner.Key{lease(table.PartitionName("orders", p), since)}))
			ms = append(ms, with(p, since.Add(time.Second), members[1])...)
		}
		write(ms)
	}
	client, sent := countReads(t, db, move)
	view, err := group.Members(t.Context(), client, db.Table, "orders")
	require.NoError(t, err)
	assert.EqualValues(t, 2, sent.Load(), "a page, and the rest")
	require.Len(t, view.Members, 2)
	assert.Equal(t, []string{first, last}, view.Members[0].Partitions)
	assert.Empty(t, view.Members[1].Partitions, "the move came after the view")
	assert.Equal(t, others, len(view.Unassigned)) // not Len, which would print them all

	view, err = group.Members(t.Context(), client, db.Table, "orders")
	require.NoError(t, err)
	require.Len(t, view.Members, 2)
	assert.Equal(t, []string{first, last}, view.Members[1].Partitions, "the next view shows the move")
}
