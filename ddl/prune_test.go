package ddl_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// The row of a released lock goes, that of a held one stays, and the pruned lock is free at once, under a
// larger token.
func TestPruneRemovesWhatWasReleased(t *testing.T) {
	eachDialect(t, func(t *testing.T, db *spindletest.Database) {
		var old []spindle.Token
		for range 2 {
			gone, held := lock.New(db.Client, db.Table, "gone"), lock.New(db.Client, db.Table, "held")
			require.NoError(t, gone.Lock(t.Context()))
			require.NoError(t, held.Lock(t.Context()))
			old = append(old, gone.Token())
			require.NoError(t, gone.Unlock(t.Context()))

			n, err := ddl.Prune(t.Context(), db.Client, db.Table, time.Hour)
			require.NoError(t, err)
			require.Zero(t, n)
			n, err = ddl.Prune(t.Context(), db.Client, db.Table, 0)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			_, err = db.Client.Single().ReadRow(t.Context(), db.Table, spanner.Key{"gone"}, []string{"name"})
			require.ErrorIs(t, err, spanner.ErrRowNotFound)
			require.NoError(t, held.Unlock(t.Context()))
		}
		require.Less(t, old[0], old[1])
	})
}

// Prune returns how many locks it deleted before it failed, even if it had split a batch: a caller that calls it again to
// continue adds up the numbers.
func TestPruneCountsWhatItHasDeletedBeforeItFails(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	var answers []error
	answer := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if _, ok := req.(*sppb.CommitRequest); ok {
			next := answers[0]
			if answers = answers[1:]; next != nil {
				return next
			}
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	client := connect(t, db, grpc.WithChainUnaryInterceptor(answer))
	aborted, denied := status.Error(codes.Aborted, "another claims b"), status.Error(codes.PermissionDenied, "no")
	for pruned, x := range []struct {
		answers []error
		says    string
	}{
		{[]error{denied}, "failed after 0 locks"},
		{[]error{aborted, nil, denied}, "failed after 1 locks"},
		{[]error{nil, denied}, "the tickets in table locktable failed, after 2 locks"},
	} {
		old, rows := time.Now().Add(-48*time.Hour), []*spanner.Mutation{}
		for _, name := range []string{"a", "b"} {
			rows = append(rows, spanner.InsertOrUpdate(db.Table, []string{"name", "token"}, []any{name, old}))
		}
		ticket := table.Ticket{Queue: "m", Time: 1, Nonce: "gone"}.Row()
		_, err := db.Client.Apply(t.Context(), append(rows, spanner.InsertOrUpdate(db.Table, []string{"name", "heartbeat"}, []any{ticket, old})))
		require.NoError(t, err)
		answers = x.answers
		n, err := ddl.Prune(t.Context(), client, db.Table, time.Minute)
		require.ErrorContains(t, err, x.says)
		require.Equal(t, codes.PermissionDenied, spanner.ErrCode(err))
		require.Equal(t, pruned, n)
	}
}

// Tickets of processes that wait for a lock go once nobody has written them for a day.
func TestPruneRemovesTicketsOfWaitersThatAreGone(t *testing.T) {
	eachDialect(t, func(t *testing.T, db *spindletest.Database) {
		ticket := func(nonce string, age time.Duration) string {
			key := table.Ticket{Queue: "m", Time: 1, Nonce: nonce}.Row()
			_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Insert(db.Table, []string{"name", "heartbeat"}, []any{key, time.Now().Add(-age)})})
			require.NoError(t, err)
			return key
		}
		alive, gone := ticket("alive", 23*time.Hour), ticket("gone", 25*time.Hour)
		n, err := ddl.Prune(t.Context(), db.Client, db.Table, time.Hour)
		require.NoError(t, err)
		require.Zero(t, n, "it is no lock")
		_, err = db.Client.Single().ReadRow(t.Context(), db.Table, spanner.Key{alive}, []string{"name"})
		require.NoError(t, err)
		_, err = db.Client.Single().ReadRow(t.Context(), db.Table, spanner.Key{gone}, []string{"name"})
		require.ErrorIs(t, err, spanner.ErrRowNotFound)
	})
}

// A dead holder's rows go once they have expired for long enough, if that is asked for, and its writes are fenced.
func TestPruneRemovesWhatExpired(t *testing.T) {
	eachDialect(t, func(t *testing.T, db *spindletest.Database) {
		m := lock.New(db.Client, db.Table, "order-4711", spindle.WithLease(time.Hour))
		require.NoError(t, m.Lock(t.Context()))
		fence := m.Fence()
		silent := func(ago time.Duration) {
			_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Update(db.Table, []string{"name", "heartbeat"}, []any{"order-4711", time.Now().Add(-ago)})})
			require.NoError(t, err)
		}
		prune := func(opts ...ddl.PruneOption) int {
			n, err := ddl.Prune(t.Context(), db.Client, db.Table, time.Hour, opts...)
			require.NoError(t, err)
			return n
		}
		silent(168*time.Hour + 30*time.Minute)
		require.Zero(t, prune(ddl.Expired(168*time.Hour)), "the lease is an hour")
		silent(170 * time.Hour)
		require.Zero(t, prune())
		require.Equal(t, 1, prune(ddl.Expired(168*time.Hour)))
		left := 0
		require.NoError(t, db.Client.Single().Read(t.Context(), db.Table, spanner.AllKeys(), []string{"name"}).Do(func(*spanner.Row) error { left++; return nil }))
		require.Zero(t, left)
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{fence})
		require.True(t, spindle.IsFenced(err, db.Table))
		require.ErrorIs(t, m.Unlock(t.Context()), lock.ErrNotHeld)
	})
}

func TestPruneRefusesToPruneWhatHasJustExpired(t *testing.T) {
	_, err := ddl.Prune(t.Context(), nil, "locktable", time.Hour, ddl.Expired(time.Hour))
	require.ErrorContains(t, err, "cannot prune: the age of expired locks is 1h0m0s, but must be at least 24h0m0s")
}

// No page of the table is left out.
func TestPruneCoversALargeTable(t *testing.T) {
	eachDialect(t, func(t *testing.T, db *spindletest.Database) {
		const n, each = 50_500, 99 // more than a page
		now := time.Now()
		var rows []*spanner.Mutation
		for i := range n {
			released := now
			if i%each == 0 {
				released = now.Add(-48 * time.Hour)
			}
			rows = append(rows, spanner.Insert(db.Table, []string{"name", "token"}, []any{fmt.Sprintf("invoice-%d", i), released}))
		}
		for rows := range slices.Chunk(rows, 10_000) {
			_, err := db.Client.Apply(t.Context(), rows)
			require.NoError(t, err)
		}
		pruned, err := ddl.Prune(t.Context(), db.Client, db.Table, 24*time.Hour)
		require.NoError(t, err)
		require.Equal(t, n/each+1, pruned)
		left := 0
		require.NoError(t, db.Client.Single().Read(t.Context(), db.Table, spanner.AllKeys(), []string{"name"}).Do(func(*spanner.Row) error { left++; return nil }))
		require.Equal(t, n-pruned, left)
	})
}

func TestPruneRefusesANegativeAge(t *testing.T) {
	_, err := ddl.Prune(t.Context(), nil, "locktable", -time.Second)
	require.ErrorContains(t, err, "must not be negative")
}
