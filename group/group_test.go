package group

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
)

func TestOneMemberHasEverything(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(64))
		c.until(lease/10, "a to have all", spreadOver(64, a))
		has, token := a.Has("17")
		assert.True(t, has)
		assert.NotZero(t, token)
		has, token = a.Has("64")
		assert.False(t, has, "not in the list")
		assert.Zero(t, token)
		c.end(a)
		has, _ = a.Has("17")
		assert.False(t, has)
		for name, row := range c.store.Rows() {
			assert.True(t, row.Heartbeat.IsZero() || row.Writer != "", name)
		}
	})
}

func TestAMemberThatStopsLeavesEverythingToTheOthers(t *testing.T) {
	for _, opts := range [][]Option{nil, {spindle.WithHandover()}} {
		inVirtualTime(t, func(c *cluster) {
			a, b := c.start("a", Numbered(64), opts...), c.start("b", Numbered(64), opts...)
			c.until(lease, "an even spread", spreadOver(64, a, b))
			a.stop()
			require.NoError(t, <-a.done)
			gap := c.until(lease/2, "b to have all", spreadOver(64, b))
			if len(opts) > 0 {
				assert.Less(t, gap, lease/30)
			}
		})
	}
}

// A program without a work function calls Has. With a handover, it has its partitions until the other members know that
// it leaves. Otherwise, nobody would have them until the others notice.
func TestAProgramWithoutWorkHandsItsPartitionsOver(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(64, spindle.WithHandover(), options.Option(func(o *options.Config) { o.Work = nil }))
		a.stop()
		took := c.until(lease, "a to give all up", func() bool { return a.has() == 0 })
		assert.InDelta(t, lease/3, took, float64(lease/50))
		assert.Less(t, c.until(lease/2, "b to have all", spreadOver(64, b)), lease/30)
		require.NoError(t, <-a.done)
	})
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(1, spindle.WithHandover(), options.Option(func(o *options.Config) { o.Work = nil }))
		idle := a
		if a.has() > 0 {
			idle = b
		}
		began := time.Now()
		idle.stop()
		require.NoError(t, <-idle.done)
		assert.Less(t, time.Since(began), lease/30, "there is nothing to hand over")
	})
}

func TestAMemberThatIsKilledIsReplacedWhenItsLeaseHasRunOut(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b, d := c.start("a", Numbered(64)), c.start("b", Numbered(64)), c.start("d", Numbered(64))
		c.until(lease, "an even spread", spreadOver(64, a, b, d))
		time.Sleep(3 * lease)
		a.kill()
		gap := c.until(2*lease, "the others to have all", spreadOver(64, b, d))
		assert.Less(t, gap, lease+lease/20)
		assert.Greater(t, gap, lease*6/10, "its last heartbeat was less than a third of a lease before it")
		assert.Equal(t, 1, strings.Count(b.log.String()+d.log.String(), "msg=\"evicted a member"), "the one that did it says so")
	})
}

// A member at rest costs only its heartbeats and its looks, however many partitions it has.
func TestAMemberAtRestCostsTheSameForAnyNumberOfPartitions(t *testing.T) {
	for _, n := range []int{10, 1000} {
		inVirtualTime(t, func(c *cluster) {
			a, b := c.start("a", Numbered(n)), c.start("b", Numbered(n))
			c.until(lease, "an even spread", spreadOver(n, a, b))
			time.Sleep(2 * lease)
			a.link.Counts()
			const leases = 10
			time.Sleep(leases * lease)
			sum := 0
			counts := a.link.Counts()
			for _, count := range counts {
				sum += count
			}
			assert.InDelta(t, 6.2, float64(sum)/leases, 0.3, "three heartbeats and three looks: %v", counts)
			t.Logf("%d partitions: %.2f RPCs a lease, %v", n, float64(sum)/leases, counts)
		})
	}
}

// A member has one goroutine for each running work and a constant number of other goroutines, but none for each
// partition.
func TestAMemberHasNoGoroutineForEachPartition(t *testing.T) {
	count := func(n int, work ...Option) (running int) {
		inVirtualTime(t, func(c *cluster) {
			p := c.process("a", Numbered(n))
			p.Group = New(nil, "locktable", "orders", Numbered(n), append(work, p.seam(), WithInitialDelay(0))...)
			c.run(p)
			c.until(lease, "a to have all", spreadOver(n, p))
			stacks := make([]byte, 1<<22)
			running = strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "\ncreated by github.com/spindle-lock/spindle/group.")
		})
		return running
	}
	work := WithWork(func(ctx context.Context, _ Partition) error { <-ctx.Done(); return nil })
	assert.Equal(t, count(10), count(100))
	assert.Equal(t, count(10, work)+90, count(100, work))
}
