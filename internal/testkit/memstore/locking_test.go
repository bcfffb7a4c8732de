package memstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// These tests specify the behavior that the model attributes to Spanner. Their times are exact.

const (
	way     = 2500 * time.Microsecond
	paxos   = 2500 * time.Microsecond
	refusal = 200 * time.Microsecond
)

func onModel(t *testing.T, f func(t *testing.T, s *memstore.Locking)) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.NewLocking(&memstore.Store{})
		insert(t, s.Store, "a")
		insert(t, s.Store, "b")
		f(t, s)
	})
}

func insert(t *testing.T, s table.Store, name string) {
	require.NoError(t, s.Commit(context.Background(), "insert", []table.Write{{Kind: table.Insert, Name: name}}))
}

func touch(name string) []table.Write {
	return []table.Write{{Kind: table.Update, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}}}}
}

// outcome is the duration of a call, and its error.
type outcome struct {
	took time.Duration
	err  error
}

func timed(f func() error) <-chan outcome {
	done := make(chan outcome, 1)
	start := time.Now()
	go func() {
		err := f()
		done <- outcome{time.Since(start), err}
	}()
	synctest.Wait()
	return done
}

func commits(s table.Store, name string) <-chan outcome {
	return timed(func() error { return s.Commit(context.Background(), "write", touch(name)) })
}

func transacts(s table.Store, read table.Keys, write string, think time.Duration) <-chan outcome {
	return timed(func() error {
		_, err := s.Transact(context.Background(), "txn", func(ctx context.Context, r table.Reader) ([]table.Write, error) {
			_, err := r.Read(ctx, read)
			time.Sleep(think)
			return touch(write), err
		})
		return err
	})
}

func names(names ...string) table.Keys { return table.Keys{Names: names} }

func TestWhatTheStepsTakeAlone(t *testing.T) {
	onModel(t, func(t *testing.T, s *memstore.Locking) {
		read := timed(func() error { _, _, err := s.Read(context.Background(), "", table.Present, names("a")); return err })
		assert.Equal(t, outcome{2 * way, nil}, <-read)
		assert.Equal(t, outcome{2*way + paxos, nil}, <-commits(s, "a"))
		assert.Equal(t, outcome{4*way + paxos, nil}, <-transacts(s, names("a"), "a", 0))
		missing := <-commits(s, "c")
		assert.ErrorIs(t, missing.err, table.ErrMissing)
		assert.Equal(t, 2*way+refusal, missing.took)
	})
}

func TestCommitsOfOneRowWaitInTheOrderInWhichTheyCame(t *testing.T) {
	onModel(t, func(t *testing.T, s *memstore.Locking) {
		var same []<-chan outcome
		for range 3 {
			same = append(same, commits(s, "a"))
			time.Sleep(time.Millisecond) // the next one starts later, and ends later
		}
		other := commits(s, "b")
		assert.Equal(t, outcome{2*way + paxos, nil}, <-same[0])
		assert.Equal(t, outcome{2*way + 2*paxos - time.Millisecond, nil}, <-same[1])
		assert.Equal(t, outcome{2*way + 3*paxos - 2*time.Millisecond, nil}, <-same[2])
		assert.Equal(t, outcome{2*way + paxos, nil}, <-other)
	})
}

func TestSnapshotsWaitForNobody(t *testing.T) {
	onModel(t, func(t *testing.T, s *memstore.Locking) {
		s.Paxos = time.Second
		write := commits(s, "a")
		time.Sleep(100 * time.Millisecond)
		read := timed(func() error { _, _, err := s.Read(context.Background(), "", table.Strong, names("a")); return err })
		assert.Equal(t, outcome{2 * way, nil}, <-read)
		assert.NoError(t, (<-write).err)
	})
}

func TestAnOptimisticTransactionHasNoLocksBeforeItsCommit(t *testing.T) {
	onModel(t, func(t *testing.T, s *memstore.Locking) {
		txn := transacts(s, names("a"), "a", time.Second)
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, outcome{2*way + paxos, nil}, <-commits(s, "a"))
		lost := <-txn
		assert.ErrorIs(t, lost.err, table.ErrAborted)
		assert.Equal(t, 4*way+time.Second+refusal, lost.took)
	})
}

func TestOptimisticTransactionsThatOnlyReadTheSameDoNotConflict(t *testing.T) {
	onModel(t, func(t *testing.T, s *memstore.Locking) {
		insert(t, s.Store, "c")
		x, y := transacts(s, names("c"), "a", 0), transacts(s, names("c"), "b", 0)
		assert.Equal(t, outcome{4*way + paxos, nil}, <-x)
		assert.Equal(t, outcome{4*way + paxos, nil}, <-y)
	})
}

func TestWhoGivesUpWaitingLeavesTheQueue(t *testing.T) {
	onModel(t, func(t *testing.T, s *memstore.Locking) {
		s.Paxos = time.Second
		first := commits(s, "a")
		time.Sleep(100 * time.Millisecond)
		gaveUp := timed(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			return s.Commit(ctx, "write", touch("a"))
		})
		over := <-gaveUp
		assert.Equal(t, 100*time.Millisecond, over.took)
		assert.Equal(t, codes.DeadlineExceeded, spanner.ErrCode(over.err))
		assert.Equal(t, outcome{2*way + time.Second, nil}, <-first)
		assert.Equal(t, outcome{2*way + time.Second, nil}, <-commits(s, "a"))
	})
}

// A transaction that read a missing row does not commit if the row was inserted and deleted in the meantime. Spanner
// checks whether the row has changed since the read, and not whether its content is different.
func TestARowThatCameAndWentHasChanged(t *testing.T) {
	s, ctx := &memstore.Store{}, context.Background()
	keys := table.Keys{Names: []string{"a"}}
	txn := s.Begin()
	rows, err := txn.Read(ctx, keys)
	require.NoError(t, err)
	require.Empty(t, rows)
	insert(t, s, "a")
	require.NoError(t, s.Commit(ctx, "delete", []table.Write{{Kind: table.Delete, Name: "a"}}))
	_, err = txn.Commit("claim", []table.Write{{Kind: table.Insert, Name: "a"}})
	require.ErrorIs(t, err, table.ErrAborted)

	again := s.Begin()
	_, err = again.Read(ctx, keys)
	require.NoError(t, err)
	insert(t, s, "b")
	_, err = again.Commit("claim", []table.Write{{Kind: table.Insert, Name: "a"}})
	require.NoError(t, err, "no row that it read has changed since its read")
}
