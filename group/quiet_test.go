package group

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
)

// inOrder checks that a view has n members, in the order of their slots, and that nobody misses a partition.
func (c *cluster) inOrder(n int) {
	for range 20 { // any order may happen to be the right one
		v := c.view()
		assert.Len(c.t, v.Members, n)
		assert.True(c.t, slices.IsSortedFunc(v.Members, func(a, b Member) int { return a.Slot - b.Slot }), v)
		assert.Empty(c.t, v.Unassigned)
	}
}

// A warning is for problems that an operator should look at. Members that join and leave normally log no warning.
func TestMembersThatComeAndGoWithNothingWrongAreWarnedOfNowhere(t *testing.T) {
	for name, opts := range map[string][]Option{"at once": nil, "with handovers": {spindle.WithHandover()}} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(c *cluster) {
				ps := []*process{c.start("a", Numbered(20), opts...), c.start("b", Numbered(20), opts...)}
				c.until(20*lease, "two to share", spreadOver(20, ps...))
				ps = append(ps, c.start("c", Numbered(20), opts...))
				c.until(20*lease, "three to share", spreadOver(20, ps...))
				c.inOrder(3)
				c.end(ps[0])
				c.until(20*lease, "the others to share", spreadOver(20, ps[1:]...))
				c.sleep(10 * lease)
				c.inOrder(2)
				c.end(ps[1:]...)
				assert.Len(t, c.view().Unassigned, 20, "which were given back")
				for _, p := range ps {
					assert.NotContains(t, p.log.String(), "level=WARN")
					assert.NotContains(t, p.log.String(), "level=ERROR")
				}
			})
		})
	}
}
