package elect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

func TestWallClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-5 * time.Hour, -time.Second, -fleet.Lease} {
		t.Run(step.String(), func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a, c := b.Start("a"), b.Start("b")
				token := a.Token()
				a.Clock.Wall.Add(int64(step))
				time.Sleep(10 * fleet.Lease)
				require.Equal(t, token, a.Token(), "a step back costs nothing")
				a.Link.Cut()
				a.Clock.Wall.Add(int64(step))
				last := b.Store.Rows()["mylock"].Heartbeat
				b.Until(2*fleet.Lease, func() bool { return !a.Has() })
				assert.False(t, time.Now().After(last.Add(fleet.Lease)), "and does not extend the lease")
				b.End(c, a)
			})
		})
	}
	t.Run("forward", func(t *testing.T) {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a")
			token := a.Token()
			a.Clock.Wall.Add(int64(5 * time.Hour))
			assert.False(t, a.Has(), "a step forward costs the lock at once")
			b.Until(fleet.Lease/2, a.Has)
			assert.Greater(t, a.Token(), token, "and its old term does not come back")
			assert.Equal(t, "elected, lost, elected", a.Seen.Kinds())
			b.End(a)
		})
	})
}

func TestASuspendedMachineHasLostItsLockOnResume(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		require.True(t, a.Has())
		a.Clock.Wall.Add(int64(time.Hour)) // its monotonic clock did not notice
		assert.False(t, a.Has())
		b.End(a)
	})
}
