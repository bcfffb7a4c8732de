package group

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A partition whose work has stalled stays with its member until the work has returned, and everything that tells of the
// member names it. The other partitions go on.
func TestAPartitionWhoseWorkStallsStaysWithItsMember(t *testing.T) {
	const stallsIn = 2 * lease
	inVirtualTime(t, func(c *cluster) {
		r, free := fleet.NewReports(), make(chan struct{})
		var told error
		var at time.Time
		var seen []spindle.Event
		began := map[string]int{}
		observe := spindle.WithObserver(func(e spindle.Event) {
			if e.Partition == "0" {
				seen = append(seen, e)
			}
		})
		a := c.doing("a", Numbered(2), func(ctx context.Context, p Partition) error {
			c.mu.Lock()
			began[p.Name()]++
			hangs := p.Name() == "0" && began["0"] == 1
			c.mu.Unlock()
			for ctx.Err() == nil && !hangs {
				time.Sleep(stallsIn / 3)
				_ = p.Progress()
			}
			<-ctx.Done()
			if hangs {
				told, at = context.Cause(ctx), time.Now()
				<-free
			}
			return nil
		}, spindle.WithStall(stallsIn), r.Options(), observe)
		start := time.Now()
		c.until(3*lease, "the partition to stall", func() bool { return a.has() == 1 })
		assert.ErrorIs(t, told, spindle.ErrStalled)
		assert.InDelta(t, stallsIn, at.Sub(start), float64(lease/5))
		b := c.start("b", Numbered(2))
		c.sleep(20 * lease)
		assert.Equal(t, 1, a.has()+b.has(), "only the one whose work goes on is anybody's")
		assert.ErrorContains(t, a.Health(), `the work on partition "0" has been ignoring the cancellation of its context since `)
		for _, said := range []string{"has made no progress", "the work on a partition has stalled"} {
			assert.Equal(t, 1, strings.Count(a.log.String(), said))
			_, line, _ := strings.Cut(a.log.String(), said)
			assert.Contains(t, strings.SplitN(line, "\n", 2)[0], "partition=0")
		}
		assert.Equal(t, 1.0, r.Metrics(t)["stalls{lock=orders,partition=0}"])
		kinds := []spindle.EventKind{}
		for _, e := range seen {
			kinds = append(kinds, e.Kind)
		}
		require.Equal(t, []spindle.EventKind{spindle.PartitionAssigned, spindle.Stalled, spindle.PartitionRevoked}, kinds)
		for _, e := range seen[1:] {
			assert.ErrorIs(t, e.Err, spindle.ErrStalled)
		}
		close(free)
		c.until(3*lease, "an even spread", spreadOver(2, a, b))
		assert.NoError(t, a.Health())
	})
}

// Only work that runs can stall: neither a pause before it begins again nor a partition that is kept without work is a stall.
func TestWorkThatHasReturnedDoesNotStall(t *testing.T) {
	for _, then := range []EarlyReturn{BeginAgain, KeepIdle, Release} {
		inVirtualTime(t, func(c *cluster) {
			a := c.doing("a", Numbered(2), func(context.Context, Partition) error { return nil }, spindle.WithStall(lease/3), WithEarlyReturn(then))
			c.sleep(20 * lease)
			assert.Zero(t, strings.Count(a.log.String(), "no progress"), then)
		})
	}
}

// Work that was told to stop, and then hangs, has stalled as well. The log, the metrics and an event name the partition that does not
// move, even if its member has left its term or is about to.
func TestWorkThatHangsAfterItWasToldToStopStalls(t *testing.T) {
	const stallsIn = lease
	for name, tell := range map[string]func(*process){
		"the partition is paused": func(a *process) { assert.NoError(a.of.t, a.Pause("0")) },
		"its member is cut off":   func(a *process) { a.link.Cut() },
		"its member leaves":       func(a *process) { a.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(c *cluster) {
				r, free := fleet.NewReports(), make(chan struct{})
				var stalled []spindle.Event
				a := c.doing("a", Numbered(1), func(ctx context.Context, p Partition) error {
					for ctx.Err() == nil {
						_ = p.Progress()
						time.Sleep(lease / 10)
					}
					<-free
					return nil
				}, spindle.WithStall(stallsIn), r.Options(), spindle.WithHandover(), spindle.WithObserver(func(e spindle.Event) {
					if e.Kind == spindle.Stalled {
						stalled = append(stalled, e)
					}
				}))
				c.until(3*lease, "the partition", func() bool { return a.has() == 1 })
				token := a.Held()[0].Token()
				tell(a)
				c.sleep(2*lease + lease/5)
				require.Len(t, stalled, 1)
				assert.Equal(t, "0", stalled[0].Partition)
				assert.Equal(t, token, stalled[0].Token)
				assert.ErrorIs(t, stalled[0].Err, spindle.ErrStalled)
				assert.Equal(t, 1, strings.Count(a.log.String(), "the work on a partition has stalled"))
				assert.Equal(t, 1.0, r.Metrics(t)["stalls{lock=orders,partition=0}"])
				close(free)
				a.link.Heal()
				c.end(a)
			})
		})
	}
}
