package group

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/memtable"
	"github.com/spindle-lock/spindle/internal/table"
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
		var told atomic.Int32
		a.linger = func(partition string) {
			told.Add(1)
			has, _ := a.Has(partition)
			assert.False(t, has, "the work on %s was told that it is over", partition)
		}
		c.run(a)
		time.Sleep(3 * lease)
		assert.NotZero(t, told.Load())
		c.end(a)
	})
}

// Slots are never removed: who can't join for a while must not go for ever higher ones.
func TestAnOutageMakesNobodyTakeAHighSlot(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.start("a", Numbered(4)), c.process("b", Numbered(4))
		c.until(lease, "a to have all", spreadOver(4, a))
		b.link.Cut()
		c.run(b)
		time.Sleep(20 * lease)
		b.link.Mend()
		c.until(3*lease, "an even spread", spreadOver(4, a, b))
		for name := range c.store.Rows() {
			if lock, _, _ := strings.Cut(name, "_"); strings.Contains(name, "/member/") {
				assert.LessOrEqual(t, lock, table.SlotName("orders", 1))
			}
		}
		c.end(a, b)
	})
}
