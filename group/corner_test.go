package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// These are faults that were found in attempts to break the protocol.

// A confirmation that was applied, but whose second attempt below the client is refused, leaves rows that name the
// member. The member has to reconcile these rows even if the partition is assigned to another member by then, because
// no other member can free them.
func TestAConfirmationThatIsRefusedAfterItWasAppliedIsReconciled(t *testing.T) {
	for range 8 { // it is a matter of chance which partitions are being moved when d is counted
		inVirtualTime(t, func(c *cluster) {
			const n = 30
			a := c.start("a", Numbered(n))
			c.until(lease, "a to have all", spreadOver(n, a))
			b := c.start("b", Numbered(n)) // gets the partitions that later members get, too
			c.until(3*lease, "an even spread", spreadOver(n, a, b))
			c.sleep(3 * lease)
			var on atomic.Bool
			on.Store(true)
			a.link.Again(func(step string) bool { return step == "confirm-partitions" && on.Swap(false) })
			a.link.After(func(step string) {
				if step == "confirm-partitions" {
					time.Sleep(lease * 15 / 10) // the reply is slow, and d is counted before it arrives
				}
			})
			d := c.start("d", Numbered(n))
			c.sleep(lease * 8 / 10)
			b.stop()
			<-b.done
			c.sleep(lease)
			a.link.After(nil)
			a.link.Again(nil)
			c.sleep(5 * lease)
			assert.Equal(t, n, c.worked(), "five leases after b has left")
			c.end(a, d)
		})
	}
}

// A partition that could not be claimed, and has moved to another member since, does not make this member unhealthy.
func TestAPartitionThatFailedAndMovedAwayIsForgotten(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 12
		var row atomic.Value
		a, b := c.process("a", Numbered(n)), c.start("b", Numbered(n))
		a.link.Store = poison{a.link.Store, &row}
		c.run(a)
		c.until(lease, "an even spread", spreadOver(n, a, b))
		c.sleep(3 * lease)
		name := names(b.Held())[0]
		row.Store(table.PartitionName("orders", name))
		b.stop()
		<-b.done
		c.until(5*lease, "a to have all but one", func() bool { return a.has() == n-1 })
		all := []*process{a}
		for others := false; !others; { // until another member has it
			require.Less(t, len(all), 12)
			d := c.start(fmt.Sprint("d", len(all)), Numbered(n))
			all = append(all, d)
			c.sleep(3 * lease)
			for _, p := range all[1:] {
				has, _ := p.Has(name)
				others = others || has
			}
		}
		c.sleep(4 * lease)
		assert.NoError(t, a.Health())
		c.end(all...)
	})
}

// A partition that could not be freed at first, but was freed later, does not make the member unhealthy.
func TestAPartitionThatWasFreedAtLastIsForgotten(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(2))
		c.until(lease, "a to have all", spreadOver(2, a))
		c.sleep(2 * lease)
		var on atomic.Bool
		on.Store(true)
		a.link.Refuse(func(step string) error {
			if on.Load() && (step == "release-partitions" || step == "reconcile") {
				return errors.New("not today")
			}
			return nil
		})
		b := c.start("b", Numbered(2))
		c.until(3*lease, "a to revoke one", func() bool { return a.has() == 1 })
		c.sleep(lease / 2)
		on.Store(false)
		c.until(3*lease, "an even spread", spreadOver(2, a, b))
		c.sleep(5 * lease)
		assert.NoError(t, a.Health())
		c.end(a, b)
	})
}

// If a partition is paused while it is being claimed, its work does not begin.
func TestAPartitionThatIsPausedWhileItIsClaimedIsNotWorkedOn(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		var mu sync.Mutex
		begun := 0
		var cause error
		a := c.process("a", Numbered(1))
		a.Group = New(nil, "locktable", "orders", Numbered(1), a.seam(), spindle.WithID("a"), WithInitialDelay(0), WithWork(func(ctx context.Context, p Partition) error {
			mu.Lock()
			begun++
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			cause = context.Cause(ctx)
			mu.Unlock()
			return nil
		}))
		a.link.After(func(step string) {
			if step == "confirm-partitions" {
				require.NoError(t, a.Pause("0"))
				time.Sleep(lease / 20)
			}
		})
		c.run(a)
		c.sleep(3 * lease)
		mu.Lock()
		assert.Zero(t, begun)
		assert.NotErrorIs(t, cause, ErrMoved, "no other member is there")
		mu.Unlock()
		c.end(a)
	})
}

// Work that hangs keeps only its own partition from other members, even if its member was of no use for a while and is
// alone.
func TestAUselessMemberThatIsAloneComesBackWhateverWorkDoes(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 8
		a, b := c.shared(n)
		free := c.hung(a)
		defer free()
		a.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not today")))
		b.stop()
		<-b.done
		c.until(6*lease, "a to give up", func() bool { return a.has() == 0 })
		a.link.Refuse(nil)
		c.sleep(12 * lease)
		assert.GreaterOrEqual(t, a.has(), n/2, "what b had is free, and nobody else is there")
		free()
		c.clash = nil
		c.end(a)
	})
}

// Balanced fails if Run ends just as Balanced is called.
func TestBalancedDoesNotMissTheEndOfRun(t *testing.T) {
	var p *process
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t}
		p = c.process("a", Numbered(1))
	})
	g := p.Group
	stop := make(untilClosed)
	require.NoError(t, g.runs.Start(t.Context(), nil, loop.Settings{}, func() loop.Loop { return stop }))
	g.standing.mu.Lock()
	done := make(chan error, 1)
	go func() { done <- g.Balanced(context.Background()) }()
	time.Sleep(100 * time.Millisecond) // Balanced has seen that Run is running, and is about to look further
	close(stop)
	require.Eventually(t, func() bool { return !g.runs.Going() }, time.Minute, time.Millisecond)
	g.standing.balanced, g.standing.trouble = false, nil
	g.standing.wake()
	g.standing.mu.Unlock()
	select {
	case err := <-done:
		require.ErrorContains(t, err, "has ended")
	case <-time.After(2 * time.Second):
		t.Fatal("it waits for what will not come")
	}
}

// Work whose context has just ended, together with the term's, is not reported in the log or by Health as hanging since
// the machine was started. The loop can look before it notices that the term has ended, for example after a pause of
// the process.
func TestWorkWhoseContextHasJustEndedDoesNotHang(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		p := c.process("a", Numbered(1))
		p.clock.Mono.Add(int64(100 * 365 * 24 * time.Hour)) // as on a machine that has been running, because virtual time is before its start
		c.sleep(2 * lease)
		m := &member{g: p.Group, voice: voice{log: p.config.Log}, inventory: share.NewInventory("orders", []string{"0"})}
		e := m.inventory.All[0]
		m.inventory.Hold(e, 1, lease) // its context has ended, and the loop has not revoked it yet
		e.Busy = e.Assigned
		m.remind()
		assert.Empty(t, p.log.String())
		assert.Nil(t, p.standing.stuck)
	})
}

// A plan has no slots that no member can have, because joining members go through all slots up to the highest one.
func TestAPlanWithASlotThatCanNotBeIsRefused(t *testing.T) {
	l := plan.NewList([]string{"0"})
	members := []plan.Member{{Slot: 0, Token: 1, List: l.Digest(), Weight: 1}, {Slot: 1 << 30, Token: 1, List: l.Digest(), Weight: 1}}
	p, ok := (*plan.Plan)(nil).Next(l, members, time.Now())
	require.True(t, ok)
	_, err := plan.Decode(p.Encode(), l)
	assert.Error(t, err)
}

// The longest plan fits into a column that spindle check accepts.
func TestTheLongestPlanFitsIntoTheColumn(t *testing.T) {
	var lists []plan.List
	var members []plan.Member
	for i := range 2 {
		var names []string
		for j := range MaxPartitions {
			names = append(names, string(rune('a'+i))+strings.Repeat("x", j%3)+time.Duration(j).String())
		}
		lists = append(lists, plan.NewList(names))
		for s := range 150 {
			members = append(members, plan.Member{Slot: i*150 + s, Token: 1763869189000000, List: lists[i].Digest(), Weight: 1})
		}
	}
	p, _ := (*plan.Plan)(nil).Next(lists[0], members, time.Now())
	p, ok := p.Next(lists[1], members, time.Now())
	require.True(t, ok)
	assert.LessOrEqual(t, len(p.Encode()), table.MaxWriter)
}

// Balanced depends on the member's target partitions, so it blocks while these are unknown, for example while a new
// group waits for more members.
func TestBalancedBlocksWhileAGroupThatBeginsWaits(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(4), WithInitialDelay(lease/3))
		require.NoError(t, a.Balanced(context.Background()))
		require.Equal(t, 4, a.has())
		c.end(a)
		b := c.start("b", Numbered(4), WithInitialDelay(lease/3))
		require.NoError(t, b.Balanced(context.Background()))
		assert.Equal(t, 4, b.has())
		c.end(b)
	})
}

// The same is true for a member whose list has not been published yet.
func TestBalancedBlocksUntilTheOwnListIsPublished(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(4))
		c.until(lease, "a to have all", spreadOver(4, a))
		c.sleep(2 * lease)
		b := c.start("b", Named("x", "y", "z"))
		require.NoError(t, b.Balanced(context.Background()))
		assert.Equal(t, 3, b.has())
		c.end(a, b)
	})
}

// An observer is told that a partition was revoked only if it was told that the partition was assigned.
func TestAnObserverIsToldOfNoRevocationOfWhatItNeverHad(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 30
		var mu sync.Mutex
		sum := map[string]int{}
		var bad []string
		a := c.start("a", Numbered(n), spindle.WithObserver(func(e spindle.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case spindle.PartitionAssigned:
				sum[e.Partition]++
			case spindle.PartitionRevoked:
				if sum[e.Partition]--; sum[e.Partition] < 0 {
					bad = append(bad, e.Partition)
				}
			}
		}))
		c.until(lease, "a to have all", spreadOver(n, a))
		b := c.start("b", Numbered(n))
		c.until(3*lease, "an even spread", spreadOver(n, a, b))
		c.sleep(3 * lease)
		a.link.After(func(step string) {
			if step == "confirm-partitions" {
				time.Sleep(lease * 15 / 10) // d is counted in the meantime
			}
		})
		d := c.start("d", Numbered(n))
		c.sleep(lease * 8 / 10)
		b.stop()
		<-b.done
		c.sleep(3 * lease)
		mu.Lock()
		assert.Empty(t, bad)
		mu.Unlock()
		c.end(a, d)
	})
}

// A reason that kept a member from joining long ago is not reported as the reason why it is not in the group now.
func TestHealthSaysNotWhyItCouldNotJoinLongAgo(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		b := c.start("b", Numbered(2))
		a := c.process("a", Numbered(2))
		a.link.Refuse(fleet.Refusing("claim", errors.New("no role")))
		c.run(a)
		c.sleep(lease)
		a.link.Refuse(nil)
		for i := range 6 {
			c.until(12*lease, "a to have one", func() bool { return a.has() == 1 })
			c.deleteMembers("a")
			c.until(lease, "a's term to end", func() bool { return strings.Count(a.log.String(), "msg=left") > i })
		}
		c.sleep(4 * lease) // it cools down
		require.ErrorContains(t, a.Health(), "the process has not been in the group")
		assert.NotContains(t, a.Health().Error(), "no role")
		c.end(a, b)
	})
}

// A partition whose rows can't be read stays idle until they are corrected, so Health reports it after three leases.
func TestAPartitionWhoseRowsCanNotBeReadMakesUnhealthy(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(4))
		c.until(lease, "a to have all", spreadOver(4, a))
		row := a.leaseRow("3")
		c.end(a)
		_ = row
		at := time.Now().Add(-time.Hour).UTC()
		name := table.PartitionName("orders", "3")
		c.remove(name)
		cell := func(name, writer string) table.Write {
			return table.Write{Kind: table.Insert, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: time.Now().Add(-time.Minute).UTC()}, {Column: table.ColToken, Value: at}, {Column: table.ColWriter, Value: writer}}}
		}
		c.operate(cell(name, "somebody"), cell(table.LeaseKey(name, table.TokenAt(at)), "{"))
		b := c.start("b", Numbered(4))
		c.sleep(6 * lease)
		require.Equal(t, 3, b.has())
		assert.Error(t, b.Health())
		c.end(b)
	})
}

// Pause can be called from any goroutine, even just after Run. This test is for the race detector.
func TestPauseJustAfterRunIsNoRace(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		for range 50 {
			a := c.start("a", Numbered(1))
			require.NoError(t, a.Pause("0"))
			c.sleep(lease / 10)
			assert.Zero(t, a.has())
			c.end(a)
		}
	})
}

// untilClosed is a loop that continues until the channel is closed.
type untilClosed chan struct{}

func (c untilClosed) Run(context.Context) error { <-c; return nil }
func (untilClosed) Overdue() bool               { return false }
func (untilClosed) End()                        {}
