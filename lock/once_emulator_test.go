package lock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

func counter(t *testing.T, db *spindletest.Database) int64 {
	row, err := db.Client.Single().ReadRow(t.Context(), "counter", spanner.Key{1}, []string{"n"})
	require.NoError(t, err)
	var n int64
	require.NoError(t, row.Column(0, &n))
	return n
}

func add(ctx context.Context, txn *spanner.ReadWriteTransaction, more []*spanner.Mutation) error {
	row, err := txn.ReadRow(ctx, "counter", spanner.Key{1}, []string{"n"})
	if err != nil {
		return err
	}
	var n int64
	if err := row.Column(0, &n); err != nil {
		return err
	}
	return txn.BufferWrite(append(more, spanner.Update("counter", []string{"id", "n"}, []any{1, n + 1})))
}

func TestWhatIsCommittedWithDoneTakesEffectExactlyOnce(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Insert("counter", []string{"id", "n"}, []any{1, 0})})
		require.NoError(t, err)
		once := lock.NewOnce(db.Client, db.Table, "nightly", quiet, spindle.WithLease(10*time.Second))
		work := func(lost bool) func(context.Context, lock.Run) error {
			return func(ctx context.Context, r lock.Run) error {
				if lost {
					lose(t, db, "nightly", r.Token())
					ctx = context.WithoutCancel(ctx) // a heartbeat may notice the loss first
				}
				_, err := db.Client.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
					return add(ctx, txn, r.Done())
				})
				return err
			}
		}
		_, err = once.Do(t.Context(), lock.KeyOf("1"), work(true))
		assert.True(t, spindle.IsFenced(err, db.Table), "%v", err)
		assert.Zero(t, counter(t, db), "written by a run that had lost its lock")

		for range 3 {
			_, err = once.Do(t.Context(), lock.KeyOf("1"), work(false))
			require.NoError(t, err)
		}
		assert.EqualValues(t, 1, counter(t, db))
	})
}

func TestDoneSaysThePeriodOfATick(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		_, err := lock.NewOnce(db.Client, db.Table, "nightly", patient).Do(t.Context(), lock.Tick(time.Hour), func(ctx context.Context, r lock.Run) error {
			if _, err := db.Client.Apply(ctx, r.Done()); err != nil {
				return err
			}
			done, _, err := table.Table{Store: table.Spanner{DB: db.Client, Table: db.Table}}.Done(ctx, table.Strong, "nightly")
			assert.Equal(t, table.Due{Key: r.Key(), Period: time.Hour}, done.Due)
			return err
		})
		require.NoError(t, err)
	})
}

func TestWhatWasDoneIsNeverPruned(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		once := lock.NewOnce(db.Client, db.Table, "nightly", patient)
		tick := lock.Tick(24 * time.Hour)
		ran, err := once.Do(t.Context(), tick, func(context.Context, lock.Run) error { return nil })
		require.NoError(t, err)
		require.True(t, ran)
		n, err := ddl.Prune(t.Context(), db.Client, db.Table, 0)
		require.NoError(t, err)
		require.Equal(t, 1, n, "the lock")
		ran, err = once.Do(t.Context(), tick, func(context.Context, lock.Run) error { return nil })
		require.NoError(t, err)
		assert.False(t, ran)

		l, err := operator.ListOne(t.Context(), table.Table{Store: table.Spanner{DB: db.Client, Table: db.Table}}, "nightly")
		require.NoError(t, err)
		assert.Equal(t, operator.Free, l.State())
		assert.NotEmpty(t, l.Done.Key)
		assert.WithinDuration(t, time.Now(), l.Done.At, time.Minute)
	})
}

// This runs in both dialects, with the longest name and with keys that JSON escapes.
func TestAKeyThatIsDoneCostsOneRPCAndARunFive(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		client, rpcs := counted(t, db)
		warm := lock.New(client, db.Table, "warm", patient)
		require.NoError(t, warm.Lock(t.Context()))
		require.NoError(t, warm.Unlock(t.Context()))
		once := lock.NewOnce(client, db.Table, strings.Repeat("n", table.MaxName), quiet, spindle.WithLease(time.Minute))
		for i, key := range []string{"1", strings.Repeat("<", table.MaxDone), "\U0010ffff"} {
			run := int64(5)
			if i == 0 { // nobody has released it yet
				run = 8
			}
			for _, want := range []struct {
				ran  bool
				rpcs int64
			}{{true, run}, {false, 1}} {
				before := rpcs.Load()
				ran, err := once.Do(t.Context(), lock.KeyOf(key), func(context.Context, lock.Run) error { return nil })
				require.NoError(t, err)
				assert.Equal(t, want.ran, ran)
				assert.Equal(t, want.rpcs, rpcs.Load()-before)
			}
		}
	})
}
