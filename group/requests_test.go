package group

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The cause of the work's context says what the program requested, so that the work does not mistake it for a move.
func TestTheCauseSaysWhatTheProgramAskedFor(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		causes := make(chan error, 2)
		a := c.doing("a", Numbered(2), func(ctx context.Context, _ Partition) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		c.until(lease, "a to have all", spreadOver(2, a))
		require.NoError(t, a.Pause("0"))
		assert.Equal(t, ErrPaused, <-causes)
		require.NoError(t, a.LetGo("1"))
		assert.Equal(t, ErrLetGo, <-causes)
		require.NoError(t, a.Pause("1"))
		c.sleep(lease)
		assert.Zero(t, a.has())
		c.end(a)
	})
}
