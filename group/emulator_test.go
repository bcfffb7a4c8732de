package group_test

import (
	"context"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/spindletest"
)

func needEmulator(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
}

const checkpoints = `CREATE TABLE checkpoints (name VARCHAR NOT NULL PRIMARY KEY, position BIGINT)`

// member runs one member on a separate client until the test ends or stop is called.
func (c *cluster) member(id string, opts ...group.Option) (g *group.Group, stop func()) {
	c.t.Helper()
	client, err := spanner.NewClientWithConfig(c.t.Context(), c.db.Path, spanner.ClientConfig{DisableNativeMetrics: true}, c.db.ClientOptions()...)
	require.NoError(c.t, err)
	c.t.Cleanup(client.Close)
	opts = append([]group.Option{spindle.WithID(id), spindle.WithLease(2 * time.Second), spindle.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	g = group.New(client, c.db.Table, "orders", group.Numbered(c.n), opts...)
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	require.NoError(c.t, g.Run(ctx, done))
	var once sync.Once
	stop = func() {
		once.Do(func() {
			end()
			assert.NoError(c.t, <-done)
		})
	}
	c.t.Cleanup(stop)
	return g, stop
}

type cluster struct {
	t  *testing.T
	db *spindletest.Database
	n  int
}

// A checkpoint and its fence are one commit, which is refused once the partition has moved. The test runs in both
// dialects.
func TestACheckpointOfAPartitionThatHasMovedIsRefused(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	for name, dialect := range map[string][]spindletest.Option{
		"GoogleSQL":  {spindletest.WithDDL(`CREATE TABLE checkpoints (name STRING(MAX) NOT NULL, position INT64) PRIMARY KEY (name)`)},
		"PostgreSQL": {spindletest.PostgreSQL(), spindletest.WithDDL(checkpoints)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cluster{t: t, db: spindletest.New(t, dialect...), n: 8}
			ctx := t.Context()
			a, stopA := c.member("a")
			held := await(t, "a to have all", func() ([]group.Partition, bool) { h := a.Held(); return h, len(h) == 8 })
			write := func(at int64) []*spanner.Mutation {
				return []*spanner.Mutation{spanner.InsertOrUpdate("checkpoints", []string{"name", "position"}, []any{"orders", at})}
			}
			p := held[3]
			_, err := p.Apply(ctx, write(1))
			require.NoError(t, err)
			_, err = p.ReadWriteTransaction(ctx, func(_ context.Context, txn *spanner.ReadWriteTransaction) error { return txn.BufferWrite(write(2)) })
			require.NoError(t, err)
			_, err = c.db.Client.Apply(ctx, append(write(3), p.Fence()))
			require.NoError(t, err)

			b, _ := c.member("b")
			view := await(t, "both to share", func() (v group.View, shared bool) {
				if len(a.Held()) != 4 || len(b.Held()) != 4 { // before the read, or it might show what was before
					return v, false
				}
				v, err := group.Members(ctx, c.db.Client, c.db.Table, "orders")
				require.NoError(t, err)
				return v, len(v.Members) == 2 && len(v.Unassigned) == 0
			})
			for i, g := range []*group.Group{a, b} {
				m := view.Members[i]
				assert.Equal(t, []string{"a", "b"}[i], m.ID)
				assert.Equal(t, i, m.Slot)
				var has []string
				for _, p := range g.Held() {
					has = append(has, p.Name())
				}
				assert.Equal(t, has, m.Partitions)
			}

			stopA()
			moved := await(t, "b to have all", func() (group.Partition, bool) {
				for _, q := range b.Held() {
					if q.Name() == p.Name() {
						return q, true
					}
				}
				return group.Partition{}, false
			})
			assert.Greater(t, moved.Token(), p.Token())
			_, err = p.Apply(ctx, write(4))
			assert.ErrorIs(t, err, spindle.ErrFenced)
			assert.ErrorContains(t, err, `group "orders"`)
			assert.ErrorContains(t, err, `partition "3"`)
			_, err = c.db.Client.Apply(ctx, append(write(5), p.Fence()))
			assert.True(t, spindle.IsFenced(err, c.db.Table), "%v", err)
			sql := databasepb.DatabaseDialect(databasepb.DatabaseDialect_value[map[string]string{"GoogleSQL": "GOOGLE_STANDARD_SQL", "PostgreSQL": "POSTGRESQL"}[name]])
			var counts []int64
			_, err = c.db.Client.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) (err error) {
				counts, err = txn.BatchUpdate(ctx, []spanner.Statement{p.FenceStatement(sql), moved.FenceStatement(sql)})
				return err
			})
			assert.NoError(t, err)
			assert.Equal(t, []int64{0, 1}, counts)
			_, err = moved.Apply(ctx, write(6))
			assert.NoError(t, err)
		})
	}
}

// A partition that an update has removed from the list keeps its rows. They can be deleted while the group runs, with
// the statement in docs/command.md. Nothing else changes, and if a list contains the partition again, its token is
// higher.
func TestTheRowsOfARemovedPartitionCanBeDeletedWhileTheGroupRuns(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	guide, err := os.ReadFile("../docs/command.md")
	require.NoError(t, err)
	statement := regexp.MustCompile(`DELETE FROM locktable WHERE name = 'orders/partition/17' .*`).FindString(string(guide))
	require.NotEmpty(t, statement)
	for name, dialect := range map[string][]spindletest.Option{"GoogleSQL": nil, "PostgreSQL": {spindletest.PostgreSQL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cluster{t: t, db: spindletest.New(t, dialect...), n: 4}
			ctx := t.Context()
			view := func() group.View {
				v, err := group.Members(ctx, c.db.Client, c.db.Table, "orders")
				require.NoError(t, err)
				return v
			}
			has := func(g *group.Group, n int) func() ([]group.Partition, bool) {
				return func() ([]group.Partition, bool) { h := g.Held(); return h, len(h) == n }
			}
			a, stopA := c.member("a")
			removed := await(t, "a to have all", has(a, 4))[3]
			c.n = 3
			b, stopB := c.member("b")
			stopA()
			before := await(t, "b to have the new list", has(b, 3))
			require.Equal(t, []string{"3"}, view().Unassigned)

			var deleted int64
			_, err := c.db.Client.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) (err error) {
				deleted, err = txn.Update(ctx, spanner.NewStatement(strings.ReplaceAll(strings.Replace(statement, "locktable", c.db.Table, 1), "/17", "/3")))
				return err
			})
			require.NoError(t, err)
			assert.EqualValues(t, 2, deleted, "the lock row and the lease row")
			assert.Empty(t, view().Unassigned)
			for i, p := range b.Held() {
				assert.Equal(t, before[i].Token(), p.Token())
			}
			_, err = removed.Apply(ctx, nil)
			assert.ErrorIs(t, err, spindle.ErrFenced)

			c.n = 4
			d, _ := c.member("d")
			stopB()
			assert.Greater(t, await(t, "d to have all", has(d, 4))[3].Token(), removed.Token())
		})
	}
}

// await polls until so returns true, and returns its value.
func await[V any](t *testing.T, what string, so func() (V, bool)) V {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if v, ok := so(); ok {
			return v
		}
		require.True(t, time.Now().Before(late), "waited in vain for %s", what)
	}
}
