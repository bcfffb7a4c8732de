package recipes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/spindletest"
)

// sharded is an inbox whose records are numbers. The records of each key are 1, 2, 3 and so on.
type sharded struct {
	*testing.T
	db  *spindletest.Database
	put map[string]int
}

func newSharded(t *testing.T) *sharded {
	s := &sharded{T: t, put: map[string]int{}}
	tables := append(slices.Clone(InboxTables), `CREATE TABLE results (
		key       STRING(MAX) NOT NULL,
		value     STRING(MAX) NOT NULL,
		committed TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
	) PRIMARY KEY (key, value)`)
	s.db = spindletest.New(t, spindletest.WithDDL(tables...))
	require.NoError(t, Renumber(t.Context(), s.db.Client, 8))
	return s
}

// round appends the next record of each of 20 keys.
func (s *sharded) round(ctx context.Context) error {
	for i := range 20 {
		key := fmt.Sprint("key", i)
		if _, err := s.db.Client.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
			return Append(ctx, txn, key, fmt.Sprintf("%06d", s.put[key]+1))
		}); err != nil {
			return err
		}
		s.put[key]++
	}
	return nil
}

// inbox returns the Inbox of a new process. It fails if a record gets a second result.
func (s *sharded) inbox() *Inbox {
	s.Helper()
	return &Inbox{DB: connect(s.T, s.db), Results: func(records []Record) (all []*spanner.Mutation) {
		last := map[string]string{}
		for _, r := range records {
			assert.Greater(s.T, r.Value, last[r.Key], "the records of a key are in order within a commit")
			last[r.Key] = r.Value
			all = append(all, spanner.Insert("results", []string{"key", "value", "committed"}, []any{r.Key, r.Value, spanner.CommitTimestamp}))
		}
		return all
	}}
}

// member runs a member of the group.
func (s *sharded) member(list group.Partitions) (g *group.Group, leave func()) {
	s.Helper()
	inbox := s.inbox()
	g = group.New(inbox.DB, s.db.Table, "orders", list, group.WithWork(inbox.Work), spindle.WithLease(2*time.Second), quiet)
	return g, run(s.T, g)
}

// balanced waits until a member owns its share of the partitions.
func (s *sharded) balanced(g *group.Group) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	require.NoError(s.T, g.Balanced(ctx))
}

type outcome struct {
	Key, Value string
	Committed  time.Time
}

// results returns the results so far, ordered by key and record.
func (s *sharded) results() (all []outcome) {
	require.NoError(s.T, spanner.SelectAll(s.db.Client.Single().Read(s.Context(), "results", spanner.AllKeys(), []string{"key", "value", "committed"}), &all))
	return all
}

func (s *sharded) eventually(what string, cond func() bool) {
	s.Helper()
	require.Eventually(s.T, cond, time.Minute, 50*time.Millisecond, what)
}

// While the number of shards changes, the records of each key are consumed in order, and each record has exactly one
// result. Records are written throughout. A first rolling update changes the list to both numberings, and a second one
// changes it to the new numbering.
func TestKeysKeepTheirOrderWhileTheNumberOfShardsChanges(t *testing.T) {
	needEmulator(t)
	s := newSharded(t)
	ctx, stop := context.WithCancel(t.Context())
	var rounds atomic.Int64
	var producer sync.WaitGroup
	producer.Go(func() {
		for s.round(ctx) == nil {
			rounds.Add(1)
		}
	})
	defer producer.Wait()
	defer stop()
	consumed := func() { // waits for the records written so far
		written := int(rounds.Load())
		s.eventually("consumed", func() bool { return len(s.results()) >= 20*written })
	}
	first, firstLeaves := s.member(Shards(8))
	second, secondLeaves := s.member(Shards(8))
	s.balanced(first)
	s.balanced(second)
	third, thirdLeaves := s.member(Shards(8, 16))
	firstLeaves()
	s.balanced(third)
	consumed()

	early, err := Drained(t.Context(), s.db.Client, 16)
	require.NoError(t, err)
	require.False(t, early, "it is not a number of shards yet")
	require.NoError(t, Renumber(t.Context(), connect(t, s.db), 16)) // the second member still has the old list
	fourth, fourthLeaves := s.member(Shards(8, 16))
	secondLeaves()
	s.balanced(fourth)
	before := rounds.Load()
	s.eventually("records in new shards are consumed", func() bool { return rounds.Load() > before+1 })
	s.eventually("the old shards are drained", func() bool {
		drained, err := Drained(t.Context(), s.db.Client, 8)
		return assert.NoError(t, err) && drained
	})
	consumed()

	fifth, _ := s.member(Shards(16))
	thirdLeaves()
	s.balanced(fifth)
	fourthLeaves()
	s.eventually("the last member owns all shards", func() bool { return len(fifth.Held()) == 16 })
	stop()
	producer.Wait()

	written := 0
	row := s.db.Client.Single().Query(t.Context(), spanner.NewStatement("SELECT COUNT(*) AS n FROM orders_inbox"))
	require.NoError(t, row.Do(func(r *spanner.Row) error {
		var n int64
		err := r.Columns(&n)
		written = int(n)
		return err
	}))
	s.eventually("all records are consumed", func() bool { return len(s.results()) == written })
	var last outcome
	for _, r := range s.results() {
		if r.Key == last.Key {
			assert.False(t, r.Committed.Before(last.Committed), "%s of %s is consumed before %s", r.Value, r.Key, last.Value)
		}
		last = r
	}
}

// If a third numbering begins before any record of the first is consumed, the shards of the second have no records. The
// shards of the third must still wait for the first.
func TestANewShardWaitsForAllEarlierNumberings(t *testing.T) {
	needEmulator(t)
	s := newSharded(t)
	require.NoError(t, s.round(t.Context()))
	require.NoError(t, Renumber(t.Context(), s.db.Client, 16))
	require.NoError(t, Renumber(t.Context(), s.db.Client, 12))
	require.Error(t, Renumber(t.Context(), s.db.Client, 8), "the rows of an old numbering are not those of a new one")
	now := present{s.db.Client}
	for key := range s.put {
		for n, want := range map[int]bool{8: true, 16: false, 12: false} {
			can, err := begun(t.Context(), now, shardOf(key, n).Name())
			require.NoError(t, err)
			assert.Equal(t, want, can, "%d shards", n)
		}
	}
	require.NoError(t, s.round(t.Context()))
	for key := range s.put {
		_, records, err := left(t.Context(), now, shardOf(key, 12).Name(), 1)
		require.NoError(t, err)
		assert.NotEmpty(t, records, "the last numbering counts, although another has more shards")
	}
	unknown, err := begun(t.Context(), now, "32/0")
	require.NoError(t, err)
	assert.False(t, unknown, "a numbering that has not begun")
}

// A shard that has fallen behind is consumed in commits that Spanner accepts. No commit's records are split, because the checkpoint would
// pass over the rest of them.
func TestABacklogIsConsumedInBatches(t *testing.T) {
	needEmulator(t)
	s := newSharded(t)
	for shard, commits := range map[string][]int{"8/0": {batch / 2, batch/2 - 1, 2, 1}, "8/1": {batch}, "8/2": {batch + 1, 1}} {
		for _, records := range commits {
			var all []*spanner.Mutation
			for i := range records {
				all = append(all, spanner.Insert("orders_inbox", []string{"shard", "committed", "key", "value"}, []any{shard, spanner.CommitTimestamp, fmt.Sprint(i), ""}))
			}
			_, err := s.db.Client.Apply(t.Context(), all)
			require.NoError(t, err)
		}
	}
	for shard, want := range map[string]int{"8/0": batch - 1, "8/1": batch, "8/2": batch + 2, "8/3": 0} {
		from, records, err := next(t.Context(), present{s.db.Client}, shard)
		require.NoError(t, err)
		assert.Len(t, records, want, shard)
		assert.Zero(t, from)
	}
}

// A checkpoint that could not be read is an error. If it were no checkpoint, a shard would be consumed from its beginning again.
func TestACheckpointThatCanNotBeReadIsAnError(t *testing.T) {
	needEmulator(t)
	now := present{newSharded(t).db.Client}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := position(ctx, now, Shard{8, 0}.Name())
	require.Equal(t, codes.Canceled, spanner.ErrCode(err))
	at, err := position(t.Context(), now, Shard{8, 0}.Name())
	require.NoError(t, err)
	assert.Zero(t, at, "there is none yet")
}

// Each key has a shard that is in the group's list.
func TestEachKeyHasAShard(t *testing.T) {
	for i := range 1000 {
		shard := shardOf(fmt.Sprint("order ", i), 8)
		assert.Equal(t, 8, shard.N)
		assert.Contains(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, shard.Rest)
	}
}

// A shard waits for exactly those shards that contained its keys.
func TestTheSourcesOfAShard(t *testing.T) {
	for before := 1; before <= 12; before++ {
		for after := 1; after <= 12; after++ {
			want := map[Shard]map[Shard]bool{}
			for hash := range before * after {
				s := Shard{after, hash % after}
				if want[s] == nil {
					want[s] = map[Shard]bool{}
				}
				want[s][Shard{before, hash % before}] = true
			}
			for s, sources := range want {
				got := map[Shard]bool{}
				for _, source := range s.sources(before) {
					got[source] = true
				}
				assert.Equal(t, sources, got, s.Name())
			}
		}
	}
}
