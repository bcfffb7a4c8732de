package elect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// prune deletes the locks that expired a day ago.
func prune(t *testing.T, b *fleet.Fleet) (pruned int) {
	tab := table.Table{Store: b.Store}
	for seen, err := range operator.Prunable(t.Context(), tab, operator.Ages{Released: time.Hour, Expired: 24 * time.Hour}) {
		require.NoError(t, err)
		n, err := tab.Prune(t.Context(), seen...)
		require.NoError(t, err)
		pruned += n
	}
	return pruned
}

// The holder, and the candidates that have seen it, were cut off for more than a day, and its rows were pruned in that
// time. They all come back at the same time as a candidate that has never seen the lock.
func TestAfterAnExpiredLockIsPrunedThereIsOneHolder(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Start("c")
		first := a.Token()
		time.Sleep(time.Minute)
		a.Link.Cut()
		c.Link.Cut()
		time.Sleep(24*time.Hour + fleet.Lease)
		require.Equal(t, 1, prune(t, b))
		require.Empty(t, b.Store.Rows())
		d := b.Machine("d")
		a.Link.Mend()
		c.Link.Mend()
		b.Run(d)
		machines := []*fleet.Machine{a, c, d}
		holders := func() (n int) {
			for _, m := range machines {
				if m.Has() {
					n++
					assert.Greater(t, m.Token(), first)
				}
			}
			return n
		}
		b.Until(fleet.Lease/10, func() bool { return holders() == 1 })
		for end := time.Now().Add(5 * fleet.Lease); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			require.Equal(t, 1, holders())
		}
		b.End(machines...)
	})
}

// This candidate can look but not claim. It can't distinguish a pruned lock from one whose rows were deleted by hand.
func TestACandidateThatWaitsWhileItsLockIsPrunedWaitsALeaseMore(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Start("c")
		time.Sleep(time.Minute)
		a.Link.Cut()
		c.Link.Refuse(fleet.Refusing("claim", assert.AnError))
		time.Sleep(24*time.Hour + 2*fleet.Lease)
		require.False(t, c.Has())
		require.Equal(t, 1, prune(t, b))
		c.Link.Refuse(nil)
		waited := b.Until(3*fleet.Lease, c.Has)
		assert.LessOrEqual(t, waited, fleet.Lease+fleet.Lease/2)
		a.Link.Mend()
		for end := time.Now().Add(5 * fleet.Lease); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			require.True(t, c.Has() && !a.Has())
		}
		b.End(a, c)
	})
}
