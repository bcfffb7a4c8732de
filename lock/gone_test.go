package lock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
)

// A refused write has shown that the lock is lost. From then on, nothing says that it is held.
func TestARefusedWriteEndsTheHoldingAtOnce(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		refused := func(h spindle.Holding, ctx context.Context) {
			_, err := spindle.Apply(ctx, []spindle.Holding{h}, nil)
			require.ErrorIs(t, err, spindle.ErrFenced)
		}
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		b.lose("m", m.Token())
		refused(m, b.Context())
		assert.Zero(t, m.Token())
		<-m.Lost()
		require.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)

		s := p.set("x", "y")
		require.NoError(t, s.Lock(b.Context()))
		b.lose("y", s.Token())
		refused(s, b.Context())
		assert.Zero(t, s.Token(), "one of its locks is lost")
		require.ErrorIs(t, s.Unlock(b.Context()), ErrNotHeld)

		one, err := p.semaphore("s", 2).Acquire(b.Context())
		require.NoError(t, err)
		other, err := p.semaphore("s", 2).Acquire(b.Context())
		require.NoError(t, err)
		b.lose(one.slot, one.Token())
		refused(one, b.Context())
		assert.Zero(t, one.Token())
		assert.NotZero(t, other.Token())
		require.NoError(t, other.Release(b.Context()))
		require.ErrorIs(t, one.Release(b.Context()), ErrNotHeld)

		err = Do(b.Context(), m, func(ctx context.Context) error {
			b.lose("m", m.Token())
			refused(m, ctx)
			began := time.Now()
			<-ctx.Done()
			assert.Zero(t, time.Since(began))
			assert.ErrorIs(t, context.Cause(ctx), ErrLost)
			return nil
		})
		require.ErrorIs(t, err, ErrNotHeld)
	})
}

// A write under a lock that is not held any more is refused without a read, and ends no later holding.
func TestARefusedWriteEndsNoOtherHolding(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m, other := p.mutex("m"), p.mutex("other")
		require.NoError(t, m.Lock(b.Context()))
		old := m.FenceIn(b.Context())
		require.NoError(t, m.Unlock(b.Context()))
		_, err := m.Apply(b.Context(), nil)
		require.ErrorIs(t, err, spindle.ErrFenced)

		require.NoError(t, m.Lock(b.Context()))
		_, err = old.Apply(b.Context(), nil)
		require.ErrorIs(t, err, spindle.ErrFenced)
		assert.NotZero(t, m.Token())

		require.NoError(t, other.Lock(b.Context()))
		b.lose("m", m.Token())
		_, err = spindle.Apply(b.Context(), []spindle.Holding{other, m}, nil)
		require.ErrorIs(t, err, spindle.ErrFenced)
		assert.Zero(t, m.Token())
		assert.NotZero(t, other.Token())
		require.NoError(t, other.Unlock(b.Context()))
	})
}
