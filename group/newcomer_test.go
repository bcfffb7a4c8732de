package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A partition that moves to a newcomer has no member for at most a twentieth of a lease, whenever the newcomer comes.
func TestANewcomerClaimsItsShareAsSoonAsItIsReleased(t *testing.T) {
	for _, n := range fleet.Part(seeds(20)...) {
		inVirtualTime(t, func(c *cluster) {
			a, b := c.start("a", Numbered(64)), c.start("b", Numbered(64))
			c.until(lease, "the first two to share", spreadOver(64, a, b))
			time.Sleep(2*lease + time.Duration(n)*lease/20)
			newcomer := c.start("c", Numbered(64))
			var longest time.Duration
			vacant := time.Now()
			c.until(2*lease, "all three to share", func() bool {
				if a.has()+b.has()+newcomer.has() == 64 {
					vacant = time.Now()
				}
				longest = max(longest, time.Since(vacant))
				return spreadOver(64, a, b, newcomer)()
			})
			require.LessOrEqual(t, longest, lease/20)
		})
	}
}

// A member that reclaims its slot keeps its age. If another member has had that slot in between, it counts as new,
// because other members had its partitions.
func TestAMemberThatLostTheSlotThatItReclaimedIsNew(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(64), spindle.WithReclaim()) // in slot 0
		c.until(lease, "a to have all", spreadOver(64, a))
		b := c.start("b", Numbered(64))
		c.until(3*lease, "an even spread", spreadOver(64, a, b))
		c.sleep(2 * lease)
		a.kill()
		<-a.done
		again := c.start("a", Numbered(64), spindle.WithReclaim())
		c.until(lease/10, "a to have its share", spreadOver(64, again, b))
		lost := c.slotOf(again)
		again.link.Cut()
		c.until(2*lease, "b to have all", spreadOver(64, b))
		d := c.start("d", Numbered(64))
		c.until(3*lease, "d to have its share", spreadOver(64, d, b))
		require.Equal(t, lost.Name, c.slotOf(d).Name)
		again.link.Mend()
		took := c.until(12*lease, "a to have its share", spreadOver(64, again, b, d))
		age := time.Since(c.slotOf(again).Token.Time())
		assert.Greater(t, took, age)
		assert.GreaterOrEqual(t, age, lease)
		assert.Less(t, age, 7*lease/4) // one heartbeat that shows it, and one look that sees this heartbeat
	})
}
