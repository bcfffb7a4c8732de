package group

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// Whatever request is in progress when a member is stopped, Run ends only once the request has returned, even if the request ignores
// the end of its context: afterwards, the program may close the Spanner client. Run can then be called again.
func TestRunEndsAfterAllItsRequests(t *testing.T) {
	for _, step := range []string{"look", "observe", "claim", "confirm", "heartbeat", "claim-partitions", "confirm-partitions", "release-partitions", "publish", "evict", "weigh", "mark-paused", "release"} {
		inVirtualTime(t, func(c *cluster) {
			dead := c.start("dead", Numbered(4))
			c.until(lease, "all", spreadOver(4, dead))
			dead.kill()
			var under atomic.Int64
			a := c.process("a", Numbered(4))
			stops, store := memstore.Once(step), a.table.Store
			a.table.Store = table.Via(func(ctx context.Context, is string, call func(context.Context, table.Store) error) error {
				under.Add(1)
				defer under.Add(-1)
				err := call(ctx, store)
				if stops(is) {
					a.stop()
					time.Sleep(lease / 2)
				}
				return err
			})
			c.run(a)
			defer time.AfterFunc(3*lease, func() { require.NoError(t, errors.Join(a.Pause("0"), a.SetWeight(2))) }).Stop()
			defer time.AfterFunc(4*lease, a.stop).Stop()
			<-a.done
			assert.Zero(t, under.Load(), step)
			assert.False(t, stops(step), "%s was sent", step)
			c.run(a)
			c.until(4*lease, step+": all but what is paused", func() bool { return a.has() >= 3 })
		})
	}
}

// Nothing that happened in an earlier Run makes a member unhealthy in the next one, even if work of the earlier Run returned late.
func TestHealthBeginsAnewWithEachRun(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(2)
		free := c.hung(a)
		a.stop()
		require.Error(t, <-a.done)
		c.sleep(4 * lease)
		free()
		c.sleep(0)
		a.link.Cut()
		c.run(a)
		assert.NoError(t, a.Health())
		c.sleep(2 * lease)
		assert.NoError(t, a.Health())
	})
}
