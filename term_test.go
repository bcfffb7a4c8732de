package spindle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/lock"
)

// A leader function acts on its own term, even after a later one has begun.
func TestATermIsOneTermAndNoLater(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		terms := make(chan spindle.Term, 2)
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, term spindle.Term) { terms <- term; <-ctx.Done() }))
		first := <-terms
		assert.Equal(t, a.Token(), first.Token())
		assert.Equal(t, fleet.Lease-fleet.Lease/100, first.Left())
		time.Sleep(time.Second)
		assert.Equal(t, fleet.Lease-fleet.Lease/100-time.Second, first.Left())
		require.NoError(t, first.StepDown(context.Background()))
		assert.LessOrEqual(t, first.Left(), time.Duration(0))

		second := <-terms
		assert.Greater(t, second.Token(), first.Token())
		assert.ErrorIs(t, first.StepDown(context.Background()), spindle.ErrNotLeader)
		assert.True(t, a.Has(), "the later term is another")
		assert.Positive(t, second.Left())
		b.End(a)
	})
}

// Whether a write still counts is for Spanner to say, and not for the local clock: the fence of a term stays the one of its token
// whatever has become of the term.
func TestTheFenceOfATermIsTheOneOfItsTokenEvenAfterItsEnd(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		terms := make(chan spindle.Term, 1)
		work := func(ctx context.Context, term spindle.Term) { terms <- term; <-ctx.Done() }
		a := b.Start("a", spindle.WithLeader(work), spindle.WithStall(fleet.Lease))
		same := func(when string, term spindle.Term, token spindle.Token) {
			assert.Equal(t, token, term.Token(), when)
			assert.Equal(t, a.Lock.Fence(token), term.Fence(), when)
			assert.Equal(t, a.FenceStatement(1, token), term.FenceStatement(1), when)
			assert.Equal(t, a.FenceStatement(1, token), term.FenceStatement(0), "Spanner reports some GoogleSQL databases without a dialect")
		}
		stalls := <-terms
		token := stalls.Token()
		same("held", stalls, token)
		b.Until(2*fleet.Lease, func() bool { return stalls.Left() <= 0 })
		same("stalled", stalls, token)
		expires := <-terms
		same("the earlier one, while a later one is held", stalls, token)
		token = expires.Token()
		a.Link.Cut()
		b.Until(2*fleet.Lease, func() bool { return expires.Left() <= 0 })
		same("expired", expires, token)
		b.End(a)
	})
}

func TestTheZeroTermIsNone(t *testing.T) {
	var none spindle.Term
	assert.Zero(t, none.Token())
	assert.LessOrEqual(t, none.Left(), time.Duration(0))
	assert.ErrorIs(t, none.StepDown(t.Context()), spindle.ErrNotLeader)
	_, err := none.Apply(t.Context(), nil)
	assert.ErrorIs(t, err, spindle.ErrFenced)
	_, err = none.ReadWriteTransaction(t.Context(), nil)
	assert.ErrorIs(t, err, spindle.ErrFenced)
	_, err = spindle.Apply(t.Context(), []spindle.Holding{none}, nil)
	assert.ErrorIs(t, err, spindle.ErrFenced)
	assert.NotPanics(t, func() { none.Fence() })
	assert.Zero(t, none.FenceStatement(1))
}

// foreign is a Holding of a program, for example one that returns nil while it does not hold its lock.
type foreign struct{ spindle.Fence }

func (f foreign) FenceIn(context.Context) spindle.Fence { return f.Fence }

// A fence that Apply doesn't know counts as not held. Without it, the commit would be made although a lock is not held.
func TestApplyRefusesAFenceOfAnotherKind(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		terms := make(chan spindle.Term, 1)
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, term spindle.Term) { terms <- term; <-ctx.Done() }))
		term := <-terms
		for _, other := range []spindle.Holding{foreign{}, foreign{struct{ spindle.Fence }{term.FenceIn(t.Context())}}} {
			for _, under := range [][]spindle.Holding{{other}, {term, other}, {other, term}} {
				_, err := spindle.Apply(t.Context(), under, nil)
				assert.ErrorIs(t, err, spindle.ErrFenced)
			}
		}
		b.End(a)
	})
}

// An example is the permit of a TryAcquire that did not get a slot.
func TestApplyRefusesALockThatIsNil(t *testing.T) {
	var permit *lock.Permit
	var mutex *lock.Mutex
	var term *spindle.Term
	for _, none := range []spindle.Holding{nil, permit, mutex, term} {
		_, err := spindle.Apply(t.Context(), []spindle.Holding{spindle.Term{}, none}, nil)
		assert.ErrorContains(t, err, "lock 2 of 2 is nil")
	}
}

func TestRunAndWaitReturnsWhatDoneWouldReceive(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Machine("a")
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- a.RunAndWait(ctx) }()
		b.Until(fleet.Lease, a.Has)
		assert.ErrorIs(t, a.RunAndWait(ctx), spindle.ErrRunning)
		a.Link.Refuse(func(step string) error {
			if step == "release" {
				return errors.New("away")
			}
			return nil
		})
		cancel()
		assert.ErrorContains(t, <-ended, "left to expire")
		assert.ErrorIs(t, a.RunAndWait(ctx), context.Canceled, "nothing was started")
	})
}

func TestErrSaysAtOnceWhatIsWrong(t *testing.T) {
	wrong := spindle.New(nil, "locktable", "mylock", spindle.WithLease(-1))
	require.ErrorContains(t, wrong.Err(), "WithLease")
	assert.Equal(t, wrong.Err(), wrong.Run(t.Context()))
	assert.ErrorContains(t, lock.New(nil, "locktable", "m", spindle.WithLease(-1)).Err(), "WithLease")
	assert.ErrorContains(t, lock.All(nil, "locktable", nil).Err(), "the set is empty")
	assert.Error(t, lock.NewSemaphore(nil, "locktable", "m", 0).Err())
	assert.Error(t, lock.NewOnce(nil, "locktable", "").Err())
	fleet.InVirtualTime(t, func(b *fleet.Fleet) { assert.NoError(t, b.Machine("a").Err()) })
}

// A program that gives up gets nothing written, by whichever way it writes, and is told that nothing was.
func TestNothingIsWrittenForACallerThatHasGivenUp(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		terms := make(chan spindle.Term, 1)
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, term spindle.Term) { terms <- term; <-ctx.Done() }))
		term := <-terms
		why := errors.New("the request was withdrawn")
		over, cancel := context.WithCancelCause(context.Background())
		cancel(why)
		unreached := func(context.Context, *spanner.ReadWriteTransaction) error { t.Error("called"); return nil }
		for name, way := range map[string]func(context.Context) (time.Time, error){
			"Term.Apply":                func(ctx context.Context) (time.Time, error) { return term.Apply(ctx, nil) },
			"Term.ReadWriteTransaction": func(ctx context.Context) (time.Time, error) { return term.ReadWriteTransaction(ctx, unreached) },
			"Lock.Apply":                func(ctx context.Context) (time.Time, error) { return a.Apply(ctx, a.Token(), nil) },
			"Lock.ReadWriteTransaction": func(ctx context.Context) (time.Time, error) { return a.ReadWriteTransaction(ctx, a.Token(), unreached) },
			"Apply":                     func(ctx context.Context) (time.Time, error) { return spindle.Apply(ctx, []spindle.Holding{term}, nil) },
		} {
			at, err := way(over)
			assert.Zero(t, at, name)
			assert.ErrorContains(t, err, "nothing was written", name)
			assert.ErrorIs(t, err, context.Canceled, name)
			assert.ErrorIs(t, err, why, name)
		}
		b.End(a)
	})
}
