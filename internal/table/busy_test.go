package table_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/spindletest"
)

// each writes one row of every kind that a table can contain, including some rows that were changed by hand.
func each(t *testing.T, store table.Store) {
	t.Helper()
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	key := func(name string) string { return table.LeaseKey(name, table.TokenAt(at)) }
	const record, free = `{"v":1,"lease":"10s","id":"a"}`, `{"v":1,"lease":"10s","free":true}`
	var writes []table.Write
	put := func(name string, heartbeat, token, writer any) {
		writes = append(writes, table.Write{Kind: table.Put, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: heartbeat},
			{Column: table.ColToken, Value: token}, {Column: table.ColWriter, Value: writer}}})
	}
	put("a", nil, at, nil) // released
	put("held", at.Add(1000), at, "a")
	put(key("held"), at.Add(1000), at, record)
	put("asked", at.Add(1000), at, "a")
	put(key("asked"), nil, nil, record)
	put("leaving", at.Add(1000), at, nil)
	put(key("leaving"), at, at, record)
	put("mutex", nil, at, nil)
	put(key("mutex"), at, at, free)
	put("invoices/0001", nil, at, nil)
	put("withdrawn", nil, at, "a")
	put(key("lost"), at, at, record)
	put(key("wrong"), at, at, nil)
	put("a_1234567890123456x", nil, at, nil)
	put(key("nothing"), nil, nil, nil)
	put("short_", at, at, `{"free":true}`)
	put("said", at.Add(1000), at, `{"free":true}`)
	put(key("said"), at, at, `{"v":1,"lease":"10s","value":"{\"free\":true}"}`)
	put("job", nil, at, nil)
	put("job!done", at, at, `{"done":"7"}`)
	put("held!broken", at, at, nil)
	put("!wait/a/0000000000000001/n", at, nil, `{"v":1}`)
	put("g/member/0001", nil, at, nil)
	put("g/member/0002", at.Add(1000), at, "b")
	put(key("g/member/0002"), at, at, `{"v":1,"lease":"10s","plan":"p"}`)
	put("g/partition/1", nil, at, nil)
	put("g/!plan", nil, at, "p")
	put("ü", nil, at, nil)
	put("", nil, nil, nil)
	put("0123456789012345", nil, nil, nil)
	put("_", nil, nil, nil)
	require.NoError(t, store.Commit(t.Context(), "test", writes))
}

// Spanner leaves out of a list exactly the rows that Keys.Skips leaves out. Otherwise a held lock would be missing from
// the page, or a released one would be on it.
func TestAQueryLeavesOutWhatIsSkipped(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		asked := &wire{}
		tab, model := connect(t, db, spanner.ClientConfig{}, asked), &memstore.Store{}
		each(t, tab.Store)
		each(t, model)
		for _, prefix := range []string{"a", "g/", ""} {
			keys := table.Keys{All: true, Busy: true, Prefix: prefix}
			want, _, err := model.Read(t.Context(), "list", table.Present, keys)
			require.NoError(t, err)
			asked.sent = nil
			got, at, err := tab.Store.Read(t.Context(), "list", table.Present, keys)
			require.NoError(t, err)
			assert.WithinDuration(t, time.Now(), at, time.Hour)
			assert.Equal(t, names(want), names(got), prefix)
			require.Len(t, asked.sent, 1, "in one request")
		}
		assert.IsType(t, &sppb.ExecuteSqlRequest{}, asked.sent[0], "rows of released locks are not transferred")
	})
}

func names(rows []table.Row) (all []string) {
	for _, r := range rows {
		all = append(all, r.Name)
	}
	return all
}

// A table whose name can't be used in SQL is read by keys.
func TestATableWhoseNameIsAWordOfSQLIsListed(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	db := spindletest.New(t, spindletest.WithDDL("CREATE TABLE `order` (name STRING(MAX) NOT NULL, heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true), "+
		"token TIMESTAMP OPTIONS (allow_commit_timestamp=true), writer STRING(MAX)) PRIMARY KEY (name)"))
	tab := table.Table{Store: table.Spanner{DB: db.Client, Table: "order"}}
	hold(t, tab, "job", time.Minute)
	found, _, err := operator.List(t.Context(), tab, "", false)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "job", found[0].Name)
}

// Reads of the whole table and pruning have a lower priority than heartbeats.
func TestListsAndPruneHaveLowPriority(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		w := &wire{}
		tab := connect(t, db, spanner.ClientConfig{}, w)
		require.NoError(t, tab.Release(t.Context(), hold(t, tab, "job", time.Minute), "job"))
		for name, do := range map[string]func(context.Context) error{
			"list":         func(ctx context.Context) error { _, _, err := operator.List(ctx, tab, "", true); return err },
			"list of held": func(ctx context.Context) error { _, _, err := operator.ListWith(ctx, tab, "", false); return err },
			"list of some": func(ctx context.Context) error { _, _, err := operator.List(ctx, tab, "j", false); return err },
			"list of a part": func(ctx context.Context) error {
				_, _, err := operator.List(ctx, tab, "g/partition/", false)
				return err
			},
			"prune": func(ctx context.Context) error {
				for seen, err := range operator.Prunable(ctx, tab, operator.Ages{}) {
					if err != nil {
						return err
					}
					if _, err := tab.Prune(ctx, seen...); err != nil {
						return err
					}
				}
				return nil
			},
		} {
			w.sent = nil
			require.NoError(t, do(t.Context()), name)
			require.NotEmpty(t, w.sent, name)
			for _, m := range w.sent {
				if o, is := m.(interface{ GetRequestOptions() *sppb.RequestOptions }); is {
					assert.Equal(t, sppb.RequestOptions_PRIORITY_LOW, o.GetRequestOptions().GetPriority(), "%s: %T", name, m)
				}
			}
		}
		w.sent = nil
		_, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{All: true})
		require.NoError(t, err)
		assert.Equal(t, sppb.RequestOptions_PRIORITY_HIGH, w.sent[0].(*sppb.ReadRequest).GetRequestOptions().GetPriority(), "the application's load must not end a member's term")
		w.sent = nil
		_, err = operator.ListOne(t.Context(), tab, "job")
		require.NoError(t, err)
		assert.Equal(t, sppb.RequestOptions_PRIORITY_HIGH, w.sent[0].(*sppb.ReadRequest).GetRequestOptions().GetPriority(), "a script may wait for spindle status")
	})
}
