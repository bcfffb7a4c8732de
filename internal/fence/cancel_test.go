package fence_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// A caller that gives up in the middle of a fenced commit gets control back at once, whatever the commit is waiting for. The caller
// may be a request handler with a time limit, or work that has to stop because its term is over.
func TestACallerThatGivesUpIsNotKeptWaiting(t *testing.T) {
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		s, db := serve(t, leaseA, own)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hang := make(chan struct{})
		s.commit = func(int) error { cancel(); <-hang; return nil }
		defer close(hang)
		answered, began := make(chan error, 1), time.Now()
		go func() { _, err := try(ctx, behind(db, "a")); answered <- err }()
		err := testcheck.Await(t, answered, "the end of a commit whose caller has given up")
		assert.Less(t, time.Since(began), 10*time.Second)
		assert.Error(t, err)
		assert.NotErrorIs(t, err, fence.ErrFenced)
	})
}

// A transaction's function gets a ctx of its caller's, with its values, and can tell that the caller has given up. Nothing is then
// committed.
func TestATransactionsFunctionSeesThatItsCallerHasGivenUp(t *testing.T) {
	type key struct{}
	s, db := serve(t, leaseA, own)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "a value"))
	defer cancel()
	_, err := behind(db, "a").ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		assert.Equal(t, "a value", ctx.Value(key{}))
		require.NoError(t, ctx.Err())
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			t.Error("the function's ctx does not end with the caller's")
		}
		return txn.BufferWrite(write())
	})
	require.Equal(t, codes.Canceled, spanner.ErrCode(err), err)
	assert.Empty(t, s.commits)
}

// A commit that the emulator discards again and again is repeated only until its caller has given up.
func TestADiscardedCommitIsNotRepeatedForACallerThatHasGivenUp(t *testing.T) {
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		s, db := serve(t, leaseA, own)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.commit = func(attempt int) error {
			if attempt == 3 {
				cancel()
			}
			if attempt > 10 {
				return nil
			}
			return status.Error(codes.NotFound, "Transaction not found: 17")
		}
		_, err := try(ctx, behind(db, "a"))
		assert.Error(t, err)
		assert.GreaterOrEqual(t, len(s.commits), 3)
		assert.LessOrEqual(t, len(s.commits), 4)
	})
}

// Whether a refused commit was fenced is found out within seconds, even if the caller itself has no time limit: Spanner may not answer
// the read, and the caller then gets the error of its commit.
func TestACheckWhetherALockIsLostHasALimitOfItsOwn(t *testing.T) {
	for name, try := range ways {
		if name == "a transaction that reads" {
			continue // whose own reads have no limit
		}
		t.Run(name, func(t *testing.T) {
			s, db := serve(t, own)
			_, err := try(t.Context(), behind(db, "a"))
			require.ErrorIs(t, err, fence.ErrFenced)
			require.Len(t, s.reads, 1)
			assert.LessOrEqual(t, s.longest, 2*time.Second)
			assert.Greater(t, s.longest, time.Second)
		})
	}
}
