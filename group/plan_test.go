package group

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// begins returns how often work has begun since the last call.
func (c *cluster) begins() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.begun {
		n += b
	}
	clear(c.begun)
	return n
}

// Members that join and leave move only the partitions that have to move, whatever gaps there are among their slots.
func TestNothingMovesButWhatMust(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 240
		var ps []*process
		for i := range 24 {
			ps = append(ps, c.start(fmt.Sprint(i), Numbered(n)))
		}
		c.until(4*lease, "an even spread", spreadOver(n, ps...))
		c.sleep(3 * lease)
		leave := func(i int) {
			ps[i].stop()
			<-ps[i].done
			ps = slices.Delete(ps, i, i+1)
		}
		c.begins()
		for i := range 12 { // every second member leaves, as with an autoscaler
			leave(i)
			c.until(4*lease, "an even spread", spreadOver(n, ps...))
		}
		c.sleep(3 * lease)
		assert.InDelta(t, 164, c.begins(), 12, "what each of them had: 10, 10.4, ... 18.5")
		for range 4 { // a rolling restart
			leave(5)
			c.until(4*lease, "an even spread", spreadOver(n, ps...))
			c.sleep(3 * lease)
			assert.Equal(t, 20, c.begins(), "one of twelve leaves")
			ps = append(ps, c.start(fmt.Sprint("new", time.Now()), Numbered(n)))
			c.until(4*lease, "an even spread", spreadOver(n, ps...))
			c.sleep(3 * lease)
			assert.Equal(t, 20, c.begins(), "one comes")
		}
		c.end(ps...)
	})
}

// A new group waits for its members, so that work does not begin in the first member and then move to the others.
func TestAGroupThatBeginsBeginsItsWorkOnce(t *testing.T) {
	for _, apart := range []time.Duration{0, lease / 200, lease / 40} {
		inVirtualTime(t, func(c *cluster) {
			const n, members = 200, 10
			var ps []*process
			for i := range members {
				ps = append(ps, c.start(fmt.Sprint(i), Numbered(n), WithInitialDelay(lease/3)))
				c.sleep(apart)
			}
			c.until(4*lease, "an even spread", spreadOver(n, ps...))
			assert.LessOrEqual(t, float64(c.begins())/n, 1.2, "%v apart", apart)
			c.sleep(20 * lease)
			c.begins()
			for _, p := range ps {
				p.link.Cut()
			}
			c.sleep(lease * 11 / 10)
			for _, p := range ps {
				p.link.Mend()
			}
			c.until(2*lease, "an even spread", spreadOver(n, ps...))
			assert.LessOrEqual(t, float64(c.begins())/n, 1.2, "after an outage")
			c.end(ps...)
		})
	}
}

// By default, a new group waits for a third of the lease. A single member waits no longer than that.
func TestTheFirstMemberWaitsForOthersForAThirdOfALease(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		p := c.process("a", Numbered(4))
		p.Group = New(nil, "locktable", "orders", Numbered(4), p.seam(), spindle.WithID("a"), WithWork(p.work))
		c.run(p)
		assert.InDelta(t, lease/3, c.until(lease, "a to have all", spreadOver(4, p)), float64(lease/20))
		c.end(p)
	})
}

// One process with one more name runs among others that are restarted. No member ever has more than its share plus one.
func TestACanaryWithANewerListHasItsShare(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 60
		var ps []*process
		for i := range 5 {
			ps = append(ps, c.start(fmt.Sprint(i), Numbered(n)))
		}
		c.until(2*lease, "an even spread", spreadOver(n, ps...))
		c.sleep(3 * lease)
		ps = append(ps, c.start("canary", Numbered(n+1)))
		shared := func(what string) {
			c.until(3*lease, what, func() bool {
				for _, p := range ps {
					if p.has() > n/len(ps)+1 {
						return false
					}
				}
				return c.worked() == n+1
			})
			c.begins()
			c.sleep(5 * lease)
			assert.Zero(t, c.begins(), "%s: nothing moves any more", what)
		}
		shared("the canary to have its share")
		has, _ := ps[5].Has(fmt.Sprint(n))
		assert.True(t, has, "what only its list has")
		for i := range 5 {
			ps[i].stop()
			<-ps[i].done
			c.sleep(lease / 2)
			ps[i] = c.start(fmt.Sprint(i, "'"), Numbered(n))
			c.sleep(2 * lease)
			shared(fmt.Sprint(i, " restarted"))
		}
		c.end(ps...)
	})
}

// Half of the names are new in a rolling update, which is rolled back before it has ended. No member ever has more than
// its share. No partition in a member's list is without work for longer than it takes to count a new member.
func TestARollbackLeavesNobodyWithMoreThanItsShare(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		before, after := Numbered(60), Numbered(30)
		for i := range 30 {
			after.names = append(after.names, fmt.Sprint("new", i))
		}
		var ps []*process
		for i := range 6 {
			ps = append(ps, c.start(fmt.Sprint(i), before))
		}
		c.until(2*lease, "an even spread", spreadOver(60, ps...))
		c.sleep(3 * lease)
		roll := func(i int, id string, list Partitions) {
			ps[i].stop()
			<-ps[i].done
			ps[i] = c.start(id, list)
			c.sleep(2 * lease)
			known := map[string]bool{}
			for _, p := range ps {
				for _, e := range p.partitions {
					known[e.name] = true
				}
			}
			c.until(2*lease, id+": all to be worked on", func() bool { return c.worked() == len(known) })
			for _, p := range ps {
				only := 0
				for _, e := range p.partitions {
					if slices.IndexFunc(ps, func(o *process) bool { return o != p && o.byName[e.name] != nil }) < 0 {
						only++
					}
				}
				assert.LessOrEqual(t, p.has(), max((len(known)+5)/6, only), "%s of %d after %s", p.id, len(known), id)
			}
		}
		for i := range 4 {
			roll(i, fmt.Sprint("after", i), after)
		}
		for i := range 4 {
			roll(3-i, fmt.Sprint("again", i), before)
		}
		c.until(lease, "an even spread", spreadOver(60, ps...))
		c.end(ps...)
	})
}

// Processes that come back under their old ids after they were evicted get their own partitions back, except for a few
// if they come back one after the other. They cause no move that other processes would not cause.
func TestPodsThatComeBackHaveTheirOwnAgain(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 60
		var ps []*process
		for i := range 6 {
			ps = append(ps, c.start(fmt.Sprint("pod", i), Numbered(n), WithIdentity(10*lease)))
		}
		c.until(4*lease, "an even spread", spreadOver(n, ps...))
		c.sleep(3 * lease)
		had := map[string][]string{}
		for _, p := range ps {
			had[p.id] = names(p.Held())
		}
		for _, p := range ps[:3] {
			p.kill()
			<-p.done
		}
		c.until(3*lease, "the others to have all", spreadOver(n, ps[3:]...))
		c.sleep(lease)
		c.begins()
		for i := range 3 {
			ps[i] = c.start(ps[i].id, Numbered(n), WithIdentity(10*lease))
		}
		c.until(4*lease, "an even spread", spreadOver(n, ps...))
		own := 0
		for _, p := range ps {
			for _, name := range names(p.Held()) {
				if slices.Contains(had[p.id], name) {
					own++
				}
			}
		}
		assert.GreaterOrEqual(t, own, n-8, "all of them, if they are counted at the same time")
		assert.LessOrEqual(t, c.begins(), 15+12+10, "as many as must move, if they are counted one after the other")
		c.end(ps...)
	})
}

// A member of weight 3 gets three times the share of a member of weight 1.
func TestSharesFollowWeights(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.start("a", Numbered(40), WithWeight(3)), c.start("b", Numbered(40))
		c.until(2*lease, "30 and 10", func() bool { return a.has() == 30 && b.has() == 10 })
		d := c.start("d", Numbered(40), WithWeight(4))
		c.until(3*lease, "15, 5 and 20", func() bool { return a.has() == 15 && b.has() == 5 && d.has() == 20 })
		c.end(a, b, d)
	})
}

// The plan's rows are only a hint. Whatever changes are made to them by hand, no work is disturbed, and members that
// join and leave get their shares.
func TestAPlanThatIsDeletedOrGarbledIsPublishedAgain(t *testing.T) {
	const head, body = "orders/!plan", "orders/body!plan"
	for how, damage := range map[string]func(*cluster){
		"both rows deleted": func(c *cluster) {
			c.operate(table.Write{Kind: table.Delete, Name: head}, table.Write{Kind: table.Delete, Name: body})
		},
		"the head deleted": func(c *cluster) { c.remove(head) },
		"the body deleted": func(c *cluster) { c.remove(body) },
		"the body garbled": func(c *cluster) {
			c.operate(table.Write{Kind: table.Update, Name: head, Set: []table.Cell{{Column: table.ColToken, Value: table.Now}}},
				table.Write{Kind: table.Update, Name: body, Set: []table.Cell{{Column: table.ColToken, Value: table.Now}, {Column: table.ColWriter, Value: "?"}}})
		},
	} {
		inVirtualTime(t, func(c *cluster) {
			a, b := c.shared(30)
			c.begins()
			damage(c)
			c.sleep(3 * lease)
			assert.Zero(t, c.begins(), how)
			d := c.start("d", Numbered(30))
			c.until(4*lease, how+": d to have its share", spreadOver(30, a, b, d))
			assert.Equal(t, 10, c.begins(), how)
			damage(c)
			b.kill()
			c.until(3*lease, how+": a and d to have all", spreadOver(30, a, d))
			c.end(a, d)
			<-b.done
		})
	}
}

// A plan that was written by a newer version is left unchanged, and members keep their partitions.
func TestAPlanOfANewerVersionIsLeftAlone(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(30)
		c.operate(table.Write{Kind: table.Update, Name: "orders/!plan", Set: []table.Cell{{Column: table.ColToken, Value: table.Now}}},
			table.Write{Kind: table.Update, Name: "orders/body!plan", Set: []table.Cell{{Column: table.ColToken, Value: table.Now}, {Column: table.ColWriter, Value: "99\nmore"}}})
		c.begins()
		d := c.start("d", Numbered(30))
		c.sleep(10 * lease)
		assert.Equal(t, []int{15, 15, 0}, []int{a.has(), b.has(), d.has()})
		assert.Zero(t, c.begins())
		assert.Equal(t, "99\nmore", c.store.Rows()["orders/body!plan"].Writer)
		assert.Contains(t, a.log.String(), "newer version")
		c.remove("orders/!plan")
		c.until(4*lease, "an even spread without that plan", spreadOver(30, a, b, d))
		c.sleep(lease)
		require.NoError(t, errors.Join(a.Health(), b.Health(), d.Health()))
		c.end(a, b, d)
	})
}

// In a crowd, not every look shows the members. The partitions of a member that leaves have no member for at most a
// tenth of a lease.
func TestAHandoverInACrowdIsAsFastAsAmongFew(t *testing.T) {
	crowd := 210
	if fleet.Brief() {
		crowd = 120
	}
	inVirtualTime(t, func(c *cluster) {
		var ps []*process
		for i := range crowd {
			ps = append(ps, c.start(fmt.Sprint(i), Numbered(crowd), spindle.WithHandover()))
		}
		for range 100 {
			if c.sleep(lease / 10); spreadOver(crowd, ps...)() {
				break
			}
		}
		c.sleep(3 * lease)
		for range 3 {
			ps[0].stop()
			require.NoError(t, <-ps[0].done)
			ps = ps[1:]
			idle := 0
			for c.worked() < crowd && idle < 100 {
				c.sleep(lease / 200)
				idle++
			}
			require.LessOrEqual(t, idle, 20, "two hundredths of a lease")
		}
		c.end(ps...)
	})
}

// Both rows of a member that still acts were deleted by hand. A process that joins leaves this slot alone for a lease,
// because the other members would otherwise mistake the member for one whose term has ended.
func TestASlotWhoseRowsHaveVanishedIsLeftAlone(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(8))
		c.until(lease, "a to have all", spreadOver(8, a))
		b := c.start("b", Numbered(8))
		c.until(4*lease, "an even spread", spreadOver(8, a, b))
		c.sleep(2 * lease)
		for _, victim := range []*process{b, a} { // the highest slot, of which no row is left, and the lowest one
			victim.link.Cut()
			slot := c.slotOf(victim)
			c.operate(table.Write{Kind: table.Delete, Name: slot.Name}, table.Write{Kind: table.Delete, Name: slot.Key()})
			d := c.start("d of "+victim.id, Numbered(8))
			for range 200 {
				c.sleep(lease / 100)
				require.Empty(t, c.clash)
			}
			victim.link.Mend()
			c.until(4*lease, "an even spread", func() bool { return c.worked() == 8 })
			d.stop()
			<-d.done
			c.until(4*lease, "an even spread", spreadOver(8, a, b))
			c.sleep(4 * lease)
		}
		c.end(a, b)
	})
}

// A member's lease still counts after all its rows were deleted, for the processes that have seen it.
func TestTheLeaseOfAMemberWhoseRowsAreGoneIsKept(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(8))
		c.until(lease, "a to have all", spreadOver(8, a))
		c.sleep(2 * lease)
		b := c.start("b", Numbered(8), spindle.WithLease(lease/10))
		c.until(4*lease, "an even spread", spreadOver(8, a, b))
		c.sleep(2 * lease)
		a.link.Cut()
		writes := []table.Write{{Kind: table.Delete, Name: c.slotOf(a).Key()}}
		for name, row := range c.store.Rows() {
			if part, is := table.PartOf(name); is && part.Partition == "" && row.Writer == "a" || strings.Contains(name, "/partition/") && strings.Contains(name, "_") {
				writes = append(writes, table.Write{Kind: table.Delete, Name: name})
			}
		}
		c.operate(writes...)
		c.sleep(2 * lease)
		require.Empty(t, c.clash)
		a.link.Mend()
		c.end(a, b)
	})
}
