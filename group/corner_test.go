package group

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// These are faults that were found in attempts to break the protocol.

// If a partition is paused while it is being claimed, its work does not begin.
func TestAPartitionThatIsPausedWhileItIsClaimedIsNotWorkedOn(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(1))
		a.link.After(func(step string) {
			if step == "confirm-partitions" {
				require.NoError(t, a.Pause("0"))
				time.Sleep(lease / 20)
			}
		})
		c.run(a)
		c.sleep(3 * lease)
		assert.Zero(t, c.begunOn("0"))
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
	stop := make(chan struct{})
	untilStop := func(context.Context, <-chan struct{}, *loop.Mailbox) (func(), error) { <-stop; return nil, nil }
	require.NoError(t, g.runs.Start(t.Context(), nil, loop.Settings{Clock: elect.SystemClock{}}, untilStop))
	g.standing.mu.Lock()
	done := make(chan error, 1)
	go func() { done <- g.Balanced(context.Background()) }()
	time.Sleep(100 * time.Millisecond) // Balanced has seen that Run is running, and is about to look further
	close(stop)
	require.Eventually(t, func() bool { return !g.runs.Going() }, time.Minute, time.Millisecond)
	g.standing.mu.Unlock()
	select {
	case err := <-done:
		require.ErrorContains(t, err, "has ended")
	case <-time.After(2 * time.Second):
		t.Fatal("it waits for what will not come")
	}
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
