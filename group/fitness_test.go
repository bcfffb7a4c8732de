package group

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A member that has worked on a partition for a lease has passed its trial for good. It gets its full share at once, in this term and in
// later ones, and its earlier terms count no more if one fails later.
func TestATrialThatIsPassedIsOver(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		_, h := c.holding(1)
		defer h.letGo()
		f := &h.m.fitness
		for range 4 {
			f.CoolDown(h.conduct.Ending(h.now(), 0, 0, true))
		}
		require.True(t, f.Trial)
		h.conduct.Trial = true
		for _, passes := range []bool{false, false, true} {
			h.checkFitness()
			assert.Equal(t, passes, h.upkeep.planning.Full)
			assert.Equal(t, !passes, f.Trial)
			assert.Equal(t, passes, h.polls.next.on, "the plan is computed anew")
			c.sleep(lease / 2)
		}
		assert.Zero(t, f.CoolDown(h.conduct.Ending(h.now(), 0, 0, true)), "like the first one")
		assert.NoError(t, errors.Join(h.conduct.Err, h.leave.why))
	})
}
