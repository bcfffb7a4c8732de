package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// batchesOf makes one commit move n partitions.
func batchesOf(n int) Option { return options.Option(func(o *options.Config) { o.Batch = n }) }

// worked returns the number of partitions that have work.
func (c *cluster) worked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.works)
}

// slowly makes each step of a process take the given time.
func slowly(p *process, d time.Duration) { p.link.After(func(string) { time.Sleep(d) }) }

// Of many partitions that move, most have work until it is their turn to move, however often their member polls.
func TestManyPartitionsMoveSomeAtATime(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n, batch = 400, 20
		a := c.process("a", Numbered(n), batchesOf(batch))
		slowly(a, lease/50)
		c.run(a)
		c.until(4*lease, "a to have all", spreadOver(n, a))
		c.sleep(2 * lease)
		b := c.process("b", Numbered(n), batchesOf(batch))
		slowly(b, lease/50)
		c.run(b)
		idle := 0
		c.until(6*lease, "an even spread", func() bool {
			require.NoError(t, a.Resume("0")) // causes a poll
			idle = max(idle, n-c.worked())
			return spreadOver(n, a, b)()
		})
		assert.Positive(t, idle)
		assert.LessOrEqual(t, idle, 3*batch, "at once")
	})
}

// A member that waits for many partitions looks at only some of them at a time, whether or not some of them hang.
func TestWorkThatHangsKeepsNoOtherOfManyPartitionsFromMoving(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n, batch = 200, 4
		free := make(chan struct{})
		a := c.process("a", Numbered(n), batchesOf(batch))
		hung := map[string]bool{}
		a.linger = func(partition string) {
			c.mu.Lock()
			hangs := len(hung) < 5*batch // all of the partitions that are revoked first
			hung[partition] = hung[partition] || hangs
			c.mu.Unlock()
			if hangs {
				<-free
			}
		}
		c.run(a)
		c.until(lease, "a to have all", spreadOver(n, a))
		b := c.start("b", Numbered(n), batchesOf(batch))
		c.until(5*lease, "all but those that hang to move", func() bool { return b.has() == n/2-5*batch })
		assert.Equal(t, n/2, a.has())
		close(free)
		c.until(lease, "the rest to move", spreadOver(n, a, b))
	})
}

// One look shows all of the many partitions that no member has.
func TestAMemberThatClaimsManyThatAreFreeLooksAFewTimes(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n, batch = 400, 4
		a := c.start("a", Numbered(n), batchesOf(batch))
		c.until(lease/4, "a to have all", spreadOver(n, a))
		assert.InDelta(t, 4, a.link.Counts()["look"], 2)
	})
}

// Looks for awaited partitions read only those partitions. So does a member that claims many. Otherwise thousands of
// partitions would be read to find a few.
func TestWhoWaitsDoesNotReadWhatItHas(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 300
		a, b := c.shared(n)
		free := make(chan struct{})
		a.linger = func(string) { <-free }
		d := c.start("d", Numbered(n)) // a's work hangs on the partitions that d should get
		c.until(2*lease, "d to have what b gave", func() bool { return d.has() == n/6 })
		c.rows.Store(0)
		d.link.Counts()
		c.sleep(lease / 2)
		looks := d.link.Counts()["look"]
		assert.InDelta(t, 27, looks, 6, "one each fiftieth of a lease")
		assert.InDelta(t, n/3+20, float64(c.rows.Load())/float64(looks), n/10, "two rows for each of a sixth, and some members")
		close(free)
		c.until(lease, "an even spread", spreadOver(n, a, b, d))
	})
}

// Looks that leave out the member's own partitions do not let it act on them for longer. If its own rows are deleted,
// it notices that in time.
func TestWhoWaitsStillSeesThatItsOwnRowsAreGone(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(16)
		free := make(chan struct{})
		a.linger = func(string) { <-free }
		d := c.start("d", Numbered(16))
		c.until(2*lease, "d to have what b gave", func() bool { return d.has() > 0 && a.has() < 8 })
		lost := d.Held()[0].Name()
		for name := range c.store.Rows() {
			if strings.HasPrefix(name, fmt.Sprintf("orders/partition/%s_", lost)) {
				require.NoError(t, c.store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: name}}))
			}
		}
		_, before := d.Has(lost)
		c.until(lease/2, "d to see it", func() bool { has, token := d.Has(lost); return !has || token != before })
		close(free)
		c.until(lease, "an even spread", spreadOver(16, a, b, d))
	})
}
