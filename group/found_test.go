package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/memtable"
)

// What the simulation has found.

// A member that can't look stops with all its partitions at once, also with those that it took after its last look.
func TestHasIsFalseOnceTheWorkWasTold(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(4))
		once := memtable.Once("take")
		a.link.After(func(step string) {
			if once(step) {
				time.Sleep(lease / 10)
				a.link.Lose(func(step string) bool { return step == "roster" }, nil)
			}
		})
		told := 0
		a.linger = func(partition string) {
			told++
			has, _ := a.Has(partition)
			assert.False(t, has, "the work on %s was told that it is over", partition)
		}
		c.run(a)
		time.Sleep(3 * lease)
		assert.NotZero(t, told)
		c.end(a)
	})
}
