package group

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// A warning is for problems that an operator should look at. Members that join and leave normally log no warning.
func TestMembersThatComeAndGoWithNothingWrongAreWarnedOfNowhere(t *testing.T) {
	for name, opts := range map[string][]Option{"at once": nil, "with handovers": {spindle.WithHandover()}} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(c *cluster) {
				ps := []*process{c.start("a", Numbered(20), opts...), c.start("b", Numbered(20), opts...)}
				c.until(20*lease, "two to share", spreadOver(20, ps...))
				ps = append(ps, c.start("c", Numbered(20), opts...))
				c.until(20*lease, "three to share", spreadOver(20, ps...))
				c.end(ps[0])
				c.until(20*lease, "the others to share", spreadOver(20, ps[1:]...))
				c.sleep(10 * lease)
				c.end(ps[1:]...)
				for _, p := range ps {
					assert.NotContains(t, p.log.String(), "level=WARN")
					assert.NotContains(t, p.log.String(), "level=ERROR")
				}
			})
		})
	}
}

func TestAViewHasTheMembersInTheOrderOfTheirSlotsAndWhatNobodyHas(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		var ps []*process
		for i := range 12 {
			ps = append(ps, c.start(fmt.Sprint(12-i), Numbered(24)))
		}
		c.until(20*lease, "all to share", spreadOver(24, ps...))
		r, err := table.Table{Store: c.store}.LookAtGroup(context.Background(), "orders", table.GroupQuery{All: true})
		require.NoError(t, err)
		var slots []int
		for _, m := range viewOf(r).Members {
			slots = append(slots, m.Slot)
		}
		assert.Len(t, slots, len(ps))
		assert.True(t, slices.IsSorted(slots), slots)
		assert.Empty(t, viewOf(r).Unassigned)
		c.end(ps...)
		r, err = table.Table{Store: c.store}.LookAtGroup(context.Background(), "orders", table.GroupQuery{All: true})
		require.NoError(t, err)
		assert.Empty(t, viewOf(r).Members)
		assert.Len(t, viewOf(r).Unassigned, 24, "which were given back")
	})
}
