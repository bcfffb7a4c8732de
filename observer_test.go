package spindle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// An observer that hangs keeps no process from the lock, and does not keep Run from being called again. The value of
// done reports the hang.
func TestAnObserverThatDoesNotReturnIsSaidAtTheEnd(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		hang := make(chan struct{})
		a := b.Start("a", options.Option(func(c *options.Config) {
			c.Observe = func(e elect.Event) {
				if spindle.EventKind(e.Kind) == spindle.Lost {
					<-hang
				}
			}
		}))
		a.Stop()
		b.Until(fleet.Lease/100, func() bool { return b.Store.Rows()[fleet.Name].Heartbeat.IsZero() })
		start := time.Now()
		assert.ErrorContains(t, <-a.Done, "the observer has not returned within one lease duration")
		assert.Equal(t, fleet.Lease, time.Since(start).Round(fleet.Lease/100))
		require.ErrorIs(t, a.Run(t.Context()), spindle.ErrRunning)
		close(hang)
		synctest.Wait()
		b.Run(a)
		b.End(a)
	})
}
