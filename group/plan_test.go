package group

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
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
	})
}

// By default, a new group waits for a third of the lease. A single member waits no longer than that.
func TestTheFirstMemberWaitsForOthersForAThirdOfALease(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		p := c.process("a", Numbered(4))
		p.Group = New(nil, "locktable", "orders", Numbered(4), p.seam(), spindle.WithID("a"))
		c.run(p)
		assert.InDelta(t, lease/3, c.until(lease, "a to have all", spreadOver(4, p)), float64(lease/20))
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
	})
}

// Processes that come back under their old ids after they were evicted get their own partitions back, although each now has
// the other's slot, except for a few if they are not counted at the same time.
func TestAProcessThatComesBackHasItsOwnAgain(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		keeps := WithIdentity(10 * lease)
		a, b := c.shared(60, keeps)
		d := c.start("d", Numbered(60), keeps)
		c.until(4*lease, "an even spread", spreadOver(60, a, b, d))
		had := map[string][]string{"a": names(a.Held()), "b": names(b.Held())}
		a.kill()
		b.kill()
		c.until(3*lease, "d to have all", spreadOver(60, d))
		ps := []*process{c.start("a", Numbered(60), keeps)} // in the highest free slot, which was b's
		c.sleep(lease / 100)
		ps = append(ps, c.start("b", Numbered(60), keeps), d)
		c.until(4*lease, "an even spread", spreadOver(60, ps...))
		own := 0
		for _, p := range ps[:2] {
			for _, name := range names(p.Held()) {
				if slices.Contains(had[p.id], name) {
					own++
				}
			}
		}
		assert.GreaterOrEqual(t, own, 32)
	})
}

// A group whose members have all gone, one after another or at the same time, gives each process its own partitions back, in whatever
// order the processes return.
func TestAGroupThatStopsKeepsTheIdentitiesOfItsMembers(t *testing.T) {
	const n = 12
	for _, opts := range [][]Option{nil, {spindle.WithHandover()}} {
		for how, goes := range map[string]func(*cluster, []*process){
			"at the same time":         func(c *cluster, ps []*process) { c.end(ps...) },
			"one after another":        func(c *cluster, ps []*process) { c.end(ps[0]); c.sleep(lease / 3); c.end(ps[1]) },
			"one, and it is long ago":  func(c *cluster, ps []*process) { c.end(ps[0]); c.sleep(5 * lease); c.end(ps[1]) },
			"one, and another is dead": func(c *cluster, ps []*process) { c.end(ps[0]); ps[1].kill() },
		} {
			inVirtualTime(t, func(c *cluster) {
				opts := append(opts, WithIdentity(100*lease))
				a, b := c.shared(n, opts...)
				had := map[string][]string{"a": names(a.Held()), "b": names(b.Held())}
				goes(c, []*process{a, b})
				c.sleep(2 * lease)
				opts = append(opts, WithInitialDelay(lease/3))
				a, b = c.start("b", Numbered(n), opts...), c.start("a", Numbered(n), opts...)
				c.until(4*lease, how+": an even spread", spreadOver(n, a, b))
				for _, p := range []*process{a, b} {
					assert.Equal(t, had[p.id], names(p.Held()), "%s, handover: %v", how, len(opts) > 2)
				}
			})
		}
	}
}

// Shares follow the weights. A member's weight changes while it runs. As few partitions move as the new shares require, whatever happens to the
// request, and the weight stays set in the next run.
func TestAChangeOfWeightMovesOnlyWhatMust(t *testing.T) {
	for how, harm := range map[string]func(*memstore.Link){
		"nothing fails":            func(*memstore.Link) {},
		"the request is lost":      func(l *memstore.Link) { l.Lose(memstore.Once("weigh"), nil) },
		"its reply is lost":        func(l *memstore.Link) { l.Lose(nil, memstore.Once("weigh")) },
		"it is applied once again": func(l *memstore.Link) { l.Again(memstore.Once("weigh")) },
	} {
		inVirtualTime(t, func(c *cluster) {
			var ps []*process
			for i := range 4 {
				ps = append(ps, c.process(fmt.Sprint(i), Numbered(120), WithWeight(1+i/2)))
				if i%3 != 0 {
					require.NoError(t, ps[i].SetWeight(1+i%2)) // before Run
				}
				c.run(ps[i])
			}
			a := ps[0]
			shares := func(want ...int) {
				t.Helper()
				c.until(3*lease, fmt.Sprint(how, ": ", want), func() bool {
					for i, p := range ps {
						if p.has() != want[i] {
							return false
						}
					}
					return true
				})
				c.sleep(5 * lease)
			}
			shares(20, 40, 20, 40)
			for _, step := range []struct {
				weight, moves int
				shares        []int
			}{{3, 25, []int{45, 30, 15, 30}}, {1, 25, []int{20, 40, 20, 40}}, {1, 0, []int{20, 40, 20, 40}}} {
				c.begins()
				harm(a.link)
				require.NoError(t, a.SetWeight(step.weight))
				shares(step.shares...)
				assert.Equal(t, step.moves, c.begins(), "%s: weight %d", how, step.weight)
			}
			require.NoError(t, a.SetWeight(4))
			a.stop()
			<-a.done
			require.NoError(t, a.SetWeight(5)) // between two runs
			c.run(a)
			shares(60, 24, 12, 24)
		})
	}
}

func TestAWeightOutOfRangeIsRefused(t *testing.T) {
	g := New(&spanner.Client{}, "locktable", "orders", Numbered(4))
	for _, n := range []int{-1, 0, 1001} {
		assert.ErrorContains(t, g.SetWeight(n), fmt.Sprintf("weight %d: want 1 to 1000", n))
	}
	assert.NoError(t, g.SetWeight(1000))
	assert.ErrorContains(t, New(nil, "locktable", "orders", Numbered(4)).SetWeight(1), "client is nil")
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
	})
}

// Both rows of a member that still acts were deleted by hand. A process that joins leaves this slot alone for a lease,
// because the other members would otherwise mistake the member for one whose term has ended.
func TestASlotWhoseRowsHaveVanishedIsLeftAlone(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(8)
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
	})
}

// A process that joins again leaves its last slot alone too if another member has had it since, and both rows of that member were deleted
// by hand. It makes no difference whether the process has seen that member.
func TestAProcessLeavesItsLastSlotAloneOnceAnotherHasHadIt(t *testing.T) {
	for _, fails := range []string{"look", "observe"} {
		inVirtualTime(t, func(c *cluster) {
			ps := c.inSlots("x", "a")
			x, a := ps[0], ps[1]
			was := c.slotOf(a)
			a.link.Refuse(fleet.Refusing(fails, errors.New("not now")))
			c.loseTerm(a)
			c.until(2*lease, "x to have all", spreadOver(24, x))
			b := c.start("b", Numbered(24))
			c.until(4*lease, "an even spread", spreadOver(24, x, b))
			slot := c.slotOf(b)
			require.Equal(t, was.Name, slot.Name)
			c.sleep(lease)
			b.link.Counts()
			c.until(lease, "a heartbeat of b", func() bool { return b.link.Counts()["heartbeat"] > 0 })
			b.link.Cut()
			c.operate(table.Write{Kind: table.Delete, Name: slot.Name}, table.Write{Kind: table.Delete, Name: slot.Key()})
			a.link.Refuse(nil)
			c.sleep(2 * lease)
			require.Empty(t, c.clash, fails)
			b.link.Mend()
			c.until(4*lease, "all to be worked on", func() bool { return c.worked() == 24 })
		})
	}
}

// A member's lease still counts after all its rows were deleted, for the processes that have seen it, even if they were not in the group.
func TestTheLeaseOfAMemberWhoseRowsAreGoneIsKept(t *testing.T) {
	for _, joined := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			a := c.alone(8)
			c.sleep(2 * lease)
			b := c.process("b", Numbered(8), spindle.WithLease(lease/10))
			if !joined {
				b.link.Refuse(fleet.Refusing("claim", errors.New("not yet")))
			}
			c.run(b)
			c.sleep(2 * lease)
			require.Equal(t, joined, spreadOver(8, a, b)())
			a.link.Cut()
			writes := []table.Write{{Kind: table.Delete, Name: c.slotOf(a).Key()}}
			for name, row := range c.store.Rows() {
				if part, is := table.PartOf(name); is && part.Partition == "" && row.Writer == "a" || strings.Contains(name, "/partition/") && strings.Contains(name, "_") {
					writes = append(writes, table.Write{Kind: table.Delete, Name: name})
				}
			}
			c.operate(writes...)
			b.link.Refuse(nil)
			c.sleep(2 * lease)
			require.Empty(t, c.clash)
			require.Equal(t, 8, b.has())
			a.link.Mend()
		})
	}
}

// Each member of a crowd reads the rows of the others more rarely, which bounds the cost. All the same, it has a dead member's
// partitions a little later, and those of a member that leaves at once: they mostly have no member for at most a tenth of a lease, and
// never for longer than a look takes to come.
func TestACrowdReadsItsMembersRarelyAndIsAsFastAsAFew(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 105
		var ps []*process
		for i := range n {
			ps = append(ps, c.start(fmt.Sprint(i), Numbered(n), spindle.WithHandover()))
		}
		shared := func() {
			for range 40 {
				if c.sleep(lease / 10); spreadOver(n, ps...)() {
					return
				}
			}
			assert.Fail(t, "no even spread")
		}
		shared()
		c.sleep(2 * lease)
		c.rows.Store(0)
		c.sleep(6 * lease) // all members read at nearly the same times: two leases have three or four of these reads
		read := float64(c.rows.Load()) / n / 6
		assert.Less(t, read, 1.8*2*n, "rows that a member reads in a lease: each look would read all, three times")
		assert.Greater(t, read, 1.2*2*n, "and more than once")
		dead := ps[7]
		dead.kill()
		ps = slices.Delete(ps, 7, 8)
		shared()
		var idle []int // two hundredths of a lease
		for range 3 {
			ps[0].stop()
			require.NoError(t, <-ps[0].done)
			ps = ps[1:]
			steps := 0
			for ; c.worked() < n && steps < 100; steps++ {
				c.sleep(lease / 200)
			}
			idle = append(idle, steps)
		}
		slices.Sort(idle)
		assert.LessOrEqual(t, idle[1], 20, "%v", idle)
		assert.LessOrEqual(t, idle[2], 70, "%v", idle)
	})
}
