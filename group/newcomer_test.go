package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What moves to a newcomer has nobody for a twentieth of a lease at most, whenever it comes.
func TestANewcomerTakesItsShareAsSoonAsItIsGiven(t *testing.T) {
	for n := range 20 {
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
			c.end(a, b, newcomer)
		})
	}
}
