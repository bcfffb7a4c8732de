package spindle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A preferred machine that has lost the lead is treated as one that has just been started.
func TestAPreferredCandidateWaitsThreeLeasesAfterItsOwnTerm(t *testing.T) {
	for _, end := range []string{"StepDown", "frozen"} {
		t.Run(end, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				c := b.Machine("c", spindle.WithHandover())
				var frozen atomic.Pointer[chan struct{}] // the machine's calls neither get through nor fail
				well := c.Link.Store
				c.Link.Store = table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
					if thawed := frozen.Load(); thawed != nil {
						<-*thawed
						ctx = context.WithoutCancel(ctx)
					}
					return call(ctx, well)
				})
				b.Run(c)
				b.Until(fleet.Lease, c.Has)
				a := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1))
				time.Sleep(time.Hour)
				require.True(t, c.Has())
				thawed := make(chan struct{})
				if end == "frozen" {
					frozen.Store(&thawed)
				} else {
					require.NoError(t, c.StepDown(context.Background()))
				}
				b.Until(3*fleet.Lease, a.Has)
				c.Link.Counts()
				close(thawed)
				took := b.Until(10*fleet.Lease, func() bool { return c.Link.Counts()["ask"] > 0 })
				assert.GreaterOrEqual(t, took, 3*fleet.Lease-fleet.Lease/3, "three leases from its first look")
				assert.LessOrEqual(t, took, 4*fleet.Lease)
				b.End(a, c)
			})
		})
	}
}

// Three leases after its last failed poll, a preferred candidate has proved itself.
func TestAPreferredCandidateAsksThreeLeasesAfterAFailedPoll(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1))
		c := b.Start("c", spindle.WithHandover())
		time.Sleep(2 * fleet.Lease)
		c.Link.Refuse(fleet.Refusing("observe", errors.New("unavailable")))
		time.Sleep(fleet.Lease)
		c.Link.Refuse(nil)
		took := b.Until(4*fleet.Lease, func() bool { return c.Link.Counts()["ask"] > 0 })
		assert.GreaterOrEqual(t, took, 3*fleet.Lease)
		b.Until(2*fleet.Lease, c.Has)
		b.End(a, c)
	})
}

// The time for which a low priority lets higher ones claim first does not depend on the lease, because short leases
// would otherwise win.
func TestTheBetterOfTwoFollowersLeadsWhateverTheirLeases(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			low := b.Start("low", spindle.WithLease(10*time.Second), spindle.WithPriority(2))
			worst := b.Start("worst", spindle.WithLease(time.Second), spindle.WithPriority(0))
			best := b.Start("best", spindle.WithLease(lease), spindle.WithPriority(5))
			time.Sleep(time.Minute)
			won := 0
			for range 50 {
				done := stepDown(context.Background(), low)
				b.Until(time.Minute, func() bool { return !low.Has() })
				b.Until(time.Minute, func() bool { return best.Has() || worst.Has() })
				require.NoError(t, <-done)
				first, other := worst, best
				if best.Has() {
					won++
					first, other = best, worst
				}
				other.Link.Cut()
				time.Sleep(fleet.Lease) // until low has seen the leader
				require.NoError(t, first.StepDown(context.Background()))
				b.Until(10*time.Minute, low.Has)
				other.Link.Mend()
				time.Sleep(2 * time.Minute) // until all machines have seen it
			}
			assert.GreaterOrEqual(t, won, 40, "of 50, with a lease of %v: half would be chance", lease)
			b.End(low, worst, best)
		})
	}
}

// Even with a lease of hours, the priority delay is at most one second.
func TestThePriorityDelayIsASecondAtMost(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithLease(24*time.Hour), spindle.WithPriority(0))
		time.Sleep(time.Minute)
		b.End(a)
		b.Run(a)
		took := b.Until(time.Minute, a.Has)
		assert.LessOrEqual(t, took, 2*time.Second, "and a random pause of another at most")
		b.End(a)
	})
}
