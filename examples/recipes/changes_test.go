package recipes

import (
	"context"
	"strconv"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/spindletest"
)

// Each change has exactly one result, even if stream partitions end and are replaced by their children, and one of two
// processes leaves. Inserting a result twice would fail. If a stream partition can't be read, its
// worker still reads the others.
func TestEachChangeOfAStreamHasItsResultOnce(t *testing.T) {
	needEmulator(t)
	const workers = 4
	churn := spindletest.Private("--override_change_stream_partition_token_alive_seconds=1",
		"--change_stream_churning_interval=1s", "--change_stream_churn_thread_sleep_interval=1s")
	db := spindletest.New(t, churn, spindletest.WithDDL(
		"CREATE TABLE orders (id INT64) PRIMARY KEY (id)",
		"CREATE CHANGE STREAM orders_changes FOR orders",
		"CREATE TABLE results (id STRING(MAX)) PRIMARY KEY (id)",
		StreamTable))
	began := time.Now()
	beginning := []any{"", "0", began, []string{}, false}
	columns := []string{"token", "worker", "position", "parents", "finished"}
	rows := []*spanner.Mutation{spanner.Insert("orders_stream", columns, beginning)}
	for i := range workers {
		worker := strconv.Itoa(i)
		broken := []any{"!" + worker, worker, began, []string{}, false} // Spanner refuses the token
		rows = append(rows, spanner.Insert("orders_stream", columns, broken))
	}
	_, err := db.Client.Apply(t.Context(), rows)
	require.NoError(t, err)
	var stream *Stream
	member := func(id string) (*group.Group, func()) {
		client := connect(t, db)
		stream = &Stream{DB: client, Workers: workers, Results: func(c Change) (all []*spanner.Mutation) {
			for _, m := range c.Mods {
				all = append(all, spanner.Insert("results", []string{"id"}, []any{m.Keys.Value.(map[string]any)["id"]}))
			}
			return all
		}}
		g := group.New(client, db.Table, "orders", group.Numbered(workers), group.WithWork(stream.Work),
			spindle.WithID(id), spindle.WithLease(2*time.Second), quiet)
		return g, run(t, g)
	}
	count := func(table string) (n int64) {
		row := db.Client.Single().Query(t.Context(), spanner.NewStatement("SELECT COUNT(*) FROM "+table))
		require.NoError(t, row.Do(func(r *spanner.Row) error { return r.Columns(&n) }))
		return n
	}
	ordered := int64(0)
	order := func() {
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Insert("orders", []string{"id"}, []any{ordered})})
		require.NoError(t, err)
		ordered++
	}
	until := func(what string, cond func() bool) {
		t.Helper()
		for late := time.Now().Add(time.Minute); !cond(); time.Sleep(50 * time.Millisecond) {
			require.True(t, time.Now().Before(late), what)
			order()
		}
	}
	first, leave := member("first")
	second, _ := member("second")
	until("both processes own half of the partitions", func() bool { return len(first.Held()) == workers/2 && len(second.Held()) == workers/2 })
	until("some stream partitions have parents", func() bool { return count("orders_stream WHERE ARRAY_LENGTH(parents) > 0") > 2 })
	leave()
	until("the second process owns all partitions", func() bool { return len(second.Held()) == workers })
	for range 10 {
		order()
	}
	require.Eventually(t, func() bool { return count("results") == ordered }, time.Minute, 50*time.Millisecond)
	assert.Positive(t, count("orders_stream WHERE finished AND token != ''"))

	again := stream.advance(t.Context(), second.Held()[0], cursor{"", began}, began.Add(time.Second))
	assert.ErrorIs(t, again, errAdvanced, "the same results are not committed twice")
}

// Children that have no row yet get one, in whatever order the records list them. Another parent may already have inserted a row for some
// of them. The changes of a child without a row are lost.
func TestEachNewChildOfAStreamPartitionGetsARow(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t, spindletest.WithDDL(StreamTable))
	insert := func(token string) *spanner.Mutation {
		return spanner.Insert("orders_stream", []string{"token", "worker", "position", "parents", "finished"}, []any{token, "0", time.Now(), []string{}, false})
	}
	_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{insert("b")})
	require.NoError(t, err)
	stream := &Stream{DB: db.Client, Workers: 4}
	_, err = db.Client.ReadWriteTransaction(t.Context(), func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		rows, err := stream.children(ctx, txn, []*record{{Children: []*childRecord{{Partitions: []*partition{{Token: "b"}, {Token: "a"}}}, {Partitions: []*partition{{Token: "c"}}}}}})
		if err != nil {
			return err
		}
		return txn.BufferWrite(rows)
	})
	require.NoError(t, err)
	var tokens []string
	read := db.Client.Single().Read(t.Context(), "orders_stream", spanner.AllKeys(), []string{"token"})
	require.NoError(t, read.Do(func(r *spanner.Row) error {
		tokens = append(tokens, "")
		return r.Columns(&tokens[len(tokens)-1])
	}))
	assert.Equal(t, []string{"a", "b", "c"}, tokens)
}
