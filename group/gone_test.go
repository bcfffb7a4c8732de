package group

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A refused write has shown that the partition is lost. Its work's context ends at once, and no other partition's does.
// The member gets the partition back under a larger token.
func TestARefusedWriteEndsTheWorkOfItsPartitionAtOnce(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		type work struct {
			Partition
			ctx context.Context
		}
		begun := make(chan work, 10)
		g := New(nil, "locktable", "sales", Named("eu", "us"), c.seam("a"), spindle.WithID("a"), WithInitialDelay(0), WithWork(func(ctx context.Context, p Partition) error {
			begun <- work{p, ctx}
			<-ctx.Done()
			return nil
		}))
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		require.NoError(t, g.Run(ctx, done))
		works := map[string]work{}
		for range 2 {
			w := <-begun
			works[w.Name()] = w
		}
		eu, us := works["eu"], works["us"]
		c.sleep(time.Second)
		_, err := eu.Apply(context.Background(), nil)
		require.NoError(t, err)
		require.NoError(t, c.store.Commit(context.Background(), "operator", []table.Write{{Kind: table.Delete, Name: table.LeaseKey(eu.fence.Names[0], eu.fence.Token)}}))
		_, err = spindle.Apply(context.Background(), []spindle.Holding{us, eu}, nil)
		require.ErrorIs(t, err, spindle.ErrFenced)
		assert.Equal(t, spindle.ErrSuperseded, context.Cause(eu.ctx))
		has, _ := g.Has("eu")
		assert.False(t, has)
		assert.NoError(t, us.ctx.Err())

		again := <-begun
		assert.Equal(t, "eu", again.Name())
		assert.Greater(t, again.Token(), eu.Token())
		_, err = eu.Apply(context.Background(), nil)
		require.ErrorIs(t, err, spindle.ErrFenced)
		assert.NoError(t, again.ctx.Err(), "an old token ends nothing")
		c.sleep(3 * fleet.Lease)
		assert.NoError(t, us.ctx.Err())
		assert.NoError(t, again.ctx.Err())
		stop()
		require.NoError(t, <-done)
	})
}
