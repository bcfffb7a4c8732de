package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
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

func TestMembersOfOneAgeShareAtOnce(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b, d := c.start("a", Numbered(64)), c.start("b", Numbered(64)), c.start("d", Numbered(64))
		c.until(lease, "an even spread", spreadOver(64, a, b, d))
		c.end(a, b, d)
	})
}

func TestAMemberThatJoinsLaterGetsItsShareALeaseLater(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(64))
		time.Sleep(5 * lease)
		had := names(a.Held())
		b := c.start("b", Numbered(64))
		c.until(2*lease, "an even spread", spreadOver(64, a, b))
		assert.Subset(t, had, names(a.Held()))
		for _, n := range names(a.Held()) {
			assert.Equal(t, 1, c.begun[n], "what stayed was not disturbed")
		}
		c.end(a, b)
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
			c.end(b)
		})
	}
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
		c.end(b, d)
		<-a.done
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
			const leases = 30
			time.Sleep(leases * lease)
			sum := 0
			counts := a.link.Counts()
			for _, count := range counts {
				sum += count
			}
			assert.InDelta(t, 6.2, float64(sum)/leases, 0.3, "three heartbeats and three looks: %v", counts)
			t.Logf("%d partitions: %.2f RPCs a lease, %v", n, float64(sum)/leases, counts)
			c.end(a, b)
		})
	}
}

// Each member reads the rows of all members. If there are more than a hundred, members read them less often, which
// bounds the cost.
func TestManyMembersReadTheOthersMoreRarely(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 105
		var all []*process
		for i := range n {
			all = append(all, c.start(fmt.Sprint(i), Numbered(n)))
		}
		shared := func(ps []*process) {
			for range 40 {
				if c.sleep(lease / 10); spreadOver(n, ps...)() {
					return
				}
			}
			assert.Fail(t, "no even spread")
		}
		shared(all)
		c.sleep(2 * lease)
		c.rows.Store(0)
		c.sleep(4 * lease)
		read := float64(c.rows.Load()) / n / 4
		assert.Less(t, read, 1.8*2*n, "rows that a member reads in a lease: each look would read all, three times")
		assert.Greater(t, read, 1.2*2*n, "and more than once")
		all[7].kill()
		rest := append(all[:7:7], all[8:]...)
		shared(rest)
		c.end(rest...)
		<-all[7].done
	})
}
