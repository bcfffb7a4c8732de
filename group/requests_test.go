package group

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// The cause of the work's context says what the program requested, so that the work does not mistake it for a move.
func TestTheCauseSaysWhatTheProgramAskedFor(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		causes := make(chan error, 2)
		a := c.doing("a", Numbered(2), func(ctx context.Context, _ Partition) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		c.until(lease, "a to have all", spreadOver(2, a))
		require.NoError(t, a.Pause("0"))
		assert.Equal(t, ErrPaused, <-causes)
		require.NoError(t, a.LetGo("1"))
		assert.Equal(t, ErrLetGo, <-causes)
		require.NoError(t, a.Pause("1"))
		c.sleep(lease)
		assert.Zero(t, a.has())
	})
}

// The metric counts all paused partitions even if it is read while the program or the loop changes them.
func TestThePausedPartitionsAreCountedWhileTheyChange(t *testing.T) {
	var r requested
	r.paused = map[string]bool{"a": true, "b": true}
	stop := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.mu.Lock()
				runtime.Gosched()
				r.mu.Unlock()
			}
		}
	})
	for range 2000 {
		require.EqualValues(t, 2, r.numberPaused())
	}
	close(stop)
	changes.Wait()
}

// view returns what Members returns.
func (c *cluster) view() View {
	c.t.Helper()
	r, err := table.Table{Store: c.store}.LookAtGroup(c.t.Context(), "orders", table.GroupQuery{All: true})
	require.NoError(c.t, err)
	return viewOf(r)
}

// begunOn returns how often work on a partition has begun.
func (c *cluster) begunOn(partition string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun[partition]
}

// paused reports whether operators see that exactly these partitions are paused, and that none is without a member.
func (c *cluster) paused(partitions ...string) func() bool {
	return func() bool {
		var paused []string
		v := c.view()
		for _, m := range v.Members {
			paused = append(paused, m.Paused...)
		}
		return strings.Join(paused, " ") == strings.Join(partitions, " ") && c.listedAsPaused() == len(partitions) && len(v.Unassigned) == 0
	}
}

// listedAsPaused returns the number of partitions in state paused.
func (c *cluster) listedAsPaused() (n int) {
	c.t.Helper()
	found, _, err := operator.List(c.t.Context(), table.Table{Store: c.store}, "", true)
	require.NoError(c.t, err)
	for _, l := range found {
		if l.State() == operator.Paused {
			n++
		}
	}
	return n
}

// Operators see which partitions a program has paused, and do not mistake them for partitions that nobody cares for. A
// pause is also said in the log and counted in the metrics, and so is one that a second Run finds. Each
// term shows it.
func TestAPauseIsVisible(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		r := fleet.NewReports()
		a := c.alone(4, r.Options())
		require.NoError(t, a.Pause("1"))
		require.NoError(t, a.Pause("3"))
		c.until(lease/10, "the pauses to be shown", c.paused("1", "3"))
		assert.Contains(t, a.log.String(), "partitions are paused by the program")
		assert.Equal(t, 2.0, r.Metrics(t)["group.paused{lock=orders}"])
		assert.Equal(t, 2.0, r.Metrics(t)["group.partitions{lock=orders}"])
		c.sleep(lease)
		a.link.Counts()
		c.sleep(10 * lease)
		assert.Zero(t, a.link.Counts()["mark-paused"], "a mark is written once")

		require.NoError(t, a.Resume("3"))
		c.until(lease/10, "only one to be paused", c.paused("1"))
		assert.Contains(t, a.log.String(), "partitions were resumed by the program")
		before := c.slotOf(a)
		c.loseTerm(a)
		c.until(2*lease, "a to have all again", func() bool { return c.slotOf(a) != before && a.has() == 3 })
		c.until(lease/10, "the next term to show it", c.paused("1"))
		c.end(a)
		assert.Zero(t, c.listedAsPaused(), "the member that paused it has gone")

		said := strings.Count(a.log.String(), "partitions are paused by the program")
		c.run(a)
		c.until(lease, "the second Run to show it", c.paused("1"))
		assert.Equal(t, said+1, strings.Count(a.log.String(), "partitions are paused by the program"))
		require.NoError(t, a.Resume("1"))
		c.until(lease/10, "a to have all", spreadOver(4, a))
	})
}

// After any requests, however often a partition is paused or resumed, the metrics count and operators see exactly the partitions that are
// paused, and the member works on the others. So it is in a second Run.
func TestEachRequestChangesWhatIsReported(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 3
		r, dice, paused := fleet.NewReports(), rand.New(rand.NewPCG(1, 1)), map[string]bool{}
		a := c.alone(n, r.Options())
		for i := range 40 {
			if i == 20 {
				c.end(a)
				c.run(a)
			}
			name := fmt.Sprint(dice.IntN(n))
			if dice.IntN(2) == 0 {
				paused[name] = true
				require.NoError(t, a.Pause(name))
			} else {
				delete(paused, name)
				require.NoError(t, a.Resume(name))
			}
			c.sleep(lease / 10)
			assert.True(t, c.paused(slices.Sorted(maps.Keys(paused))...)(), paused)
			assert.Equal(t, n-len(paused), a.has(), paused)
			m := r.Metrics(t)
			assert.Equal(t, []float64{float64(len(paused)), float64(a.has())}, []float64{m["group.paused{lock=orders}"], m["group.partitions{lock=orders}"]}, paused)
		}
	})
}

// A partition that is paused moves to another member, whose claim replaces the mark, and back. It is still paused here, and
// operators see that, whether the other member left or was evicted.
func TestAPauseIsVisibleAgainAfterItsPartitionWasAway(t *testing.T) {
	for _, goes := range []func(*cluster, *process){func(c *cluster, p *process) { c.end(p) }, func(_ *cluster, p *process) { p.kill() }} {
		inVirtualTime(t, func(c *cluster) {
			a, all := c.start("a", Numbered(4)), []string{"0", "1", "2", "3"}
			c.until(lease, "a to have all", spreadOver(4, a))
			for _, name := range all {
				require.NoError(t, a.Pause(name))
			}
			c.until(lease, "the pauses to be shown", c.paused(all...))
			c.sleep(2 * lease)
			b := c.start("b", Numbered(4))
			c.until(3*lease, "b to have its share", spreadOver(2, b))
			c.sleep(lease / 2) // a knows
			goes(c, b)
			c.until(2*lease, "the pauses to be shown again", c.paused(all...))
		})
	}
}

// pausedWhileHeld starts a member with n partitions, whose work hangs until free is called, and another member, which has paused all of
// them. It returns once the first member has revoked half of them.
func (c *cluster) pausedWhileHeld(n int, opts ...Option) (holder *process, free func()) {
	holder = c.start("b", Numbered(n))
	c.until(lease, "b to have all", spreadOver(n, holder))
	free = c.hung(holder)
	a := c.process("a", Numbered(n), opts...)
	for i := range n {
		require.NoError(c.t, a.Pause(fmt.Sprint(i)))
	}
	c.run(a)
	c.until(3*lease, "b to revoke its half", spreadOver(n/2, holder))
	return holder, free
}

// Partitions that another member has not released yet keep no others from being marked, however many there are.
func TestAPauseIsMarkedBesideThoseThatWait(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		b, free := c.pausedWhileHeld(8, batchesOf(1))
		defer free()
		for i := 7; i >= 0; i-- { // the last one that it has revoked
			if has, _ := b.Has(fmt.Sprint(i)); !has {
				require.NoError(t, b.LetGo(fmt.Sprint(i)))
				c.until(2*lease, "the pause of the one that b let go to be shown", c.paused(fmt.Sprint(i)))
				return
			}
		}
	})
}

// A partition that a living member has not released yet is left to it, and marked later.
func TestAPauseIsMarkedOnceTheOtherMemberIsDone(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		_, free := c.pausedWhileHeld(2)
		defer free()
		mine := c.view().Members[0].Partitions
		c.sleep(2 * lease)
		require.Equal(t, mine, c.view().Members[0].Partitions, "its work goes on")
		require.Len(t, mine, 2)
		free()
		c.until(lease, "the pause to be shown", func() bool { return c.listedAsPaused() == 1 })
	})
}

// A pause frees its partition only if the term of the member that the rows name is known to be over. A member that the last poll has not
// read, or whose row was deleted by hand, may still be working on the partition.
func TestAPauseFreesNothingOfAMemberThatMayWork(t *testing.T) {
	const slot = "orders/member/0000"
	for what, x := range map[string]struct {
		see   func(members map[string]table.Observation) map[string]table.Observation
		freed bool
	}{
		"no members were read":  {func(map[string]table.Observation) map[string]table.Observation { return nil }, false},
		"its row is gone":       {func(m map[string]table.Observation) map[string]table.Observation { delete(m, slot); return m }, false},
		"it renews":             {func(m map[string]table.Observation) map[string]table.Observation { return m }, false},
		"it is silent":          {seenAs(slot, func(o *table.Observation) { o.At = o.At.Add(time.Hour) }), false},
		"it was evicted":        {seenAs(slot, func(o *table.Observation) { o.Heartbeat, o.LeaseRecord = time.Time{}, nil }), true},
		"its slot is another's": {seenAs(slot, func(o *table.Observation) { o.Token++ }), true},
	} {
		inVirtualTime(t, func(c *cluster) {
			b := c.start("b", Numbered(1))
			c.until(lease, "b to have it", spreadOver(1, b))
			h := c.inHand(c.process("a", Numbered(1)))
			defer h.letGo()
			e := h.m.inventory.All[0]
			e.Target, e.Paused = true, share.Paused
			s, err := h.send.table.LookAtGroup(h.send.ctx, "orders", table.GroupQuery{Members: true})
			require.NoError(c.t, err)
			h.upkeep.showPaused(x.see(s.Members))
			h.reply()
			assert.Equal(c.t, !x.freed, c.view().Members[0].Partitions != nil, what)
			assert.Equal(c.t, x.freed, e.Paused == share.Marked, what)
		})
	}
}

// seenAs returns a function that changes one row of a poll.
func seenAs(name string, change func(*table.Observation)) func(map[string]table.Observation) map[string]table.Observation {
	return func(all map[string]table.Observation) map[string]table.Observation {
		o := all[name]
		change(&o)
		all[name] = o
		return all
	}
}

// If more partitions are paused than fit into a commit, they are all marked, in one commit after the other. If they have another member,
// one attempt is enough until the next poll.
func TestManyPausesAreMarkedABatchAtATime(t *testing.T) {
	for _, free := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			b := c.process("b", Numbered(5))
			c.run(b)
			c.until(lease, "b to have all", spreadOver(5, b))
			if free {
				c.end(b)
			}
			p := c.process("a", Numbered(5), batchesOf(2))
			h := c.inHand(p)
			defer h.letGo()
			for _, e := range h.m.inventory.All {
				e.Target, e.Paused = true, share.Paused
			}
			s, err := h.send.table.LookAtGroup(h.send.ctx, "orders", table.GroupQuery{Members: true})
			require.NoError(t, err)
			n := 0
			for h.upkeep.showPaused(s.Members); h.upkeep.marking && n < 9; n++ {
				h.reply()
			}
			if free {
				assert.Equal(t, 3, n)
				assert.Empty(t, h.m.inventory.Unmarked())
			} else {
				assert.Equal(t, 1, n)
				assert.Len(t, h.m.inventory.Unmarked(), 5)
			}
		})
	}
}

// The mark of a pause keeps no other member from the partition, and says nothing once its member's term is over.
func TestAPauseThatIsShownHoldsNobodyUp(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(4)
		mine := a.Held()[0].Name()
		require.NoError(t, a.Pause(mine))
		c.until(lease/10, "the pause to be shown", c.paused(mine))
		a.kill()
		c.until(2*lease, "b to have all", spreadOver(4, b))
		assert.True(t, c.paused()())
	})
}

// A request is for the term in which it is made. Once a partition that was let go is held again, requests about other
// partitions leave it alone.
func TestAPartitionIsLetGoOnce(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(2))
		c.until(lease, "a to have both", spreadOver(2, a))
		require.NoError(t, a.LetGo("0"))
		c.until(lease, "a to have both again", func() bool { return c.begunOn("0") == 2 && a.has() == 2 })
		_, before := a.Has("0")
		for _, request := range []func(string) error{a.Pause, a.Resume, a.LetGo} {
			require.NoError(t, request("1"))
			c.sleep(lease)
			_, token := a.Has("0")
			assert.Equal(t, before, token)
		}

		require.NoError(t, a.Pause("0"))
		c.sleep(lease)
		require.NoError(t, a.LetGo("0"), "it does nothing now")
		c.sleep(lease)
		require.NoError(t, a.Resume("0"))
		c.until(lease, "a to have both", spreadOver(2, a))
		_, before = a.Has("0")
		require.NoError(t, a.LetGo("1"))
		c.sleep(lease)
		_, token := a.Has("0")
		assert.Equal(t, before, token)
	})
}

// A member that is stopped begins no work, even if it had already claimed the partition, and keeps its other work until
// its handover is over.
func TestAClaimThatEndsDuringAHandoverBeginsNoWork(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(2), spindle.WithHandover())
		c.run(a)
		c.until(lease, "a to have both", spreadOver(2, a))
		c.sleep(2 * lease)
		require.NoError(t, a.Pause("0"))
		c.until(lease, "0 to be released", c.paused("0"))
		claims := memstore.Once("claim-partitions")
		a.link.After(func(step string) {
			switch {
			case claims(step): // the stop comes before the reply, and the plan without this member after it
				a.stop()
				time.Sleep(lease / 50)
			case step == "announce":
				time.Sleep(lease / 20)
			}
		})
		require.NoError(t, a.Resume("0"))
		c.sleep(lease / 10)
		assert.Equal(t, 1, c.begunOn("0"))
		assert.Equal(t, []string{"1"}, names(a.Held()))
	})
}
