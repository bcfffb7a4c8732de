package group

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A refused write has shown that the partition is lost. Its work's context ends at once, and no other partition's does.
// The member gets the partition back under a larger token. Each refusal is counted under the group's name.
func TestARefusedWriteEndsTheWorkOfItsPartitionAtOnce(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		type work struct {
			Partition
			ctx context.Context
		}
		begun, r := make(chan work, 10), fleet.NewReports()
		g := New(nil, "locktable", "sales", Named("eu", "us"), c.seam("a"), r.Options(), spindle.WithID("a"), WithInitialDelay(0), WithWork(func(ctx context.Context, p Partition) error {
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
		assert.Equal(t, 2.0, r.Metrics(t)["fenced{lock=sales}"])
		c.sleep(3 * fleet.Lease)
		assert.NoError(t, us.ctx.Err())
		assert.NoError(t, again.ctx.Err())
		stop()
		require.NoError(t, <-done)
	})
}

// Work that returns because its write was refused begins again at once, under a larger token. This holds even if the
// lease row is back by the next poll. Otherwise, the member keeps the partition and does not work on it.
func TestWorkThatReturnsAfterARefusedWriteBeginsAgain(t *testing.T) {
	for _, back := range []bool{false, true} {
		for _, lingers := range []time.Duration{0, lease / 2} {
			for _, early := range []EarlyReturn{BeginAgain, KeepIdle, Release} {
				inVirtualTime(t, func(c *cluster) {
					type beginning struct {
						Partition
						at time.Time
					}
					begun, write := make(chan beginning, 8), make(chan struct{})
					work := func(ctx context.Context, p Partition) error {
						begun <- beginning{p, time.Now()}
						select {
						case <-ctx.Done():
							return nil
						case <-write:
						}
						key := table.LeaseKey(p.fence.Names[0], p.fence.Token)
						row := c.store.Rows()[key]
						c.remove(key)
						_, err := p.Apply(ctx, nil)
						assert.ErrorIs(t, err, spindle.ErrFenced)
						assert.Equal(t, spindle.ErrSuperseded, context.Cause(ctx))
						if back {
							c.operate(table.Write{Kind: table.Insert, Name: key, Set: []table.Cell{{Column: table.ColWriter, Value: row.Writer}}})
						}
						time.Sleep(lingers)
						return err
					}
					a := c.doing("a", Numbered(2), work, WithEarlyReturn(early))
					b := c.doing("b", Numbered(2), work, WithEarlyReturn(early))
					c.sleep(5 * lease)
					require.True(t, spreadOver(2, a, b)())
					last := map[string]spindle.Token{}
					for len(begun) > 0 {
						p := <-begun
						last[p.Name()] = p.Token()
					}
					write <- struct{}{}
					returns := time.Now().Add(lingers)
					c.sleep(lingers + lease)
					require.Len(t, begun, 1)
					again := <-begun
					assert.Greater(t, again.Token(), last[again.Name()])
					assert.False(t, again.at.Before(returns), "the earlier work was still running")
					assert.Less(t, again.at.Sub(returns), lease/10, "not as late as the next poll")
					c.sleep(3 * lease)
					assert.True(t, spreadOver(2, a, b)())
					assert.Empty(t, begun, "no other work has begun")
				})
			}
		}
	}
}

// A write of work that was told to stop ends, and the work's next write is not sent. Otherwise, a database that does not
// answer would keep the partition from moving, and a write could take effect after the work has returned.
func TestAWriteEndsWithTheContextOfItsWork(t *testing.T) {
	for name, write := range map[string]func(context.Context, Partition) error{
		"Apply": func(ctx context.Context, p Partition) error { _, err := p.Apply(ctx, nil); return err },
		"ReadWriteTransaction": func(ctx context.Context, p Partition) error {
			_, err := p.ReadWriteTransaction(ctx, func(context.Context, *spanner.ReadWriteTransaction) error { return nil })
			return err
		},
	} {
		inVirtualTime(t, func(c *cluster) {
			answer, hung, sent := make(chan struct{}), make(chan error, 1), 0
			defer close(answer)
			a := c.process("a", Numbered(1))
			store := a.link.Store
			a.link.Store = table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				if step == "valid" {
					select {
					case <-answer:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return call(ctx, store)
			})
			a.do = func(ctx context.Context, p Partition) error {
				hung <- write(ctx, p)
				a.link.Counts()
				err := write(ctx, p)
				sent = a.link.Counts()["valid"]
				return err
			}
			c.run(a)
			c.until(lease, "a to write", func() bool { return a.link.Counts()["valid"] > 0 })
			require.NoError(t, a.Pause("0"))
			c.until(lease/10, name+" to end, and the partition to be released", c.paused("0"))
			err := <-hung
			assert.Error(t, err, name)
			assert.NotErrorIs(t, err, spindle.ErrFenced, name)
			assert.Zero(t, sent, name)
		})
	}
}
