package group

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

// When Spanner aborts members' transactions because of each other, the members send one commit at a time until no
// commit has been aborted for half a lease.
func TestAMemberWhoseClaimsAreAbortedSendsOneAtATime(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, aborts := c.process("a", Numbered(64), batchesOf(16)), true
		a.link.Refuse(func(step string) error {
			if aborts && step == "claim-partitions" {
				return table.ErrAborted
			}
			return nil
		})
		slowly(a, lease/200)
		c.run(a)
		c.sleep(lease / 10) // the first four are given up
		aborts = false
		most := 0
		c.until(2*lease, "a to have all", func() bool { most = max(most, a.asked.moves()); return spreadOver(64, a)() })
		assert.Equal(t, 1, most)
	})
}
