package spindle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
)

// What the simulation has found, in as few steps as show it.

// Seed 156470058219: the absence of an earlier time was not forgotten where the row was seen again and
// its promise could not be read, so the wait for its holder was dated back.
func TestAnAbsenceIsOverOnceTheRowIsSeenEvenIfItsPromiseIsNot(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		c := b.machine("b")
		c.link.set(func(step string) bool { return step == "claim" || step == "promise" }, nil)
		b.run(c) // sees no row, and can't claim
		time.Sleep(lease)
		a := b.start("a")
		time.Sleep(5 * lease) // c sees a's row
		c.link.mend()
		a.link.cut()
		b.operator(table.Write{Kind: table.Delete, Name: "mylock"}, table.Write{Kind: table.Delete, Name: key(a.tok())})
		b.until(3*lease, func() bool { require.False(t, a.has() && c.has(), "two holders"); return c.has() })
		b.end(a, c)
	})
}
