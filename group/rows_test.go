package group

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// These tests are about rows that are changed by hand.

// operate changes rows as an operator would by hand.
func (c *cluster) operate(writes ...table.Write) {
	c.t.Helper()
	require.NoError(c.t, c.store.Commit(c.t.Context(), "operator", writes))
}

// remove deletes a row.
func (c *cluster) remove(key string) { c.operate(table.Write{Kind: table.Delete, Name: key}) }

// unreadable has contents of rows that can't be read, because they were garbled or written by a newer version.
var unreadable = []string{"", `{"lease":`, `{"v":99,"lease":["10s"]}`}

// rewrite changes the contents of a row.
func (c *cluster) rewrite(key, says string) {
	c.operate(table.Write{Kind: table.Update, Name: key, Set: []table.Cell{{Column: table.ColWriter, Value: says}}})
}

// slotOf returns the lock of the process's member, and its token.
func (c *cluster) slotOf(p *process) table.LeaseRef {
	c.t.Helper()
	for name, row := range c.store.Rows() {
		if part, ok := table.PartOf(name); ok && part.Partition == "" && row.Writer == p.id && !row.Heartbeat.IsZero() {
			return table.LeaseRef{Name: name, Token: table.TokenAt(row.Token)}
		}
	}
	require.Fail(c.t, "no member", p.id)
	return table.LeaseRef{}
}

// leaseRow returns the key of the lease row of a partition that the process has.
func (p *process) leaseRow(partition string) string {
	_, token := p.Has(partition)
	return table.LeaseKey(table.PartitionName("orders", partition), table.Token(token))
}

// A partition whose rows were deleted is not released, and does not keep other partitions from being released. Those
// move as soon as their work has returned.
func TestAPartitionThatIsLostHoldsNoOtherUp(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(16))
		c.until(lease, "a to have all", spreadOver(16, a))
		c.sleep(2 * lease)
		free := c.hung(a)
		b := c.start("b", Numbered(16))
		c.until(2*lease, "a to tell work", func() bool { return a.has() == 8 })
		lost := a.Held()[3].Name()
		c.remove(a.leaseRow(lost))
		c.until(lease/2, "a to see it", func() bool { has, _ := a.Has(lost); return !has })
		a.link.Counts()
		free()
		c.sleep(lease / 1000)
		with := 0
		for _, row := range c.partitionRows() {
			if row.Writer == c.slotOf(a).Key() {
				with++
			}
		}
		assert.Equal(t, 8, with, "all that moves is given at once")
		c.until(lease, "an even spread", spreadOver(16, a, b))
		assert.Zero(t, a.link.Counts()["reconcile"])
		c.end(a, b)
	})
}

// If a member's lease row can't be read, that member loses its partitions, but no other member is kept from joining.
func TestAMemberWhoseRowCanNotBeReadKeepsNobodyFromJoining(t *testing.T) {
	for _, says := range unreadable {
		inVirtualTime(t, func(c *cluster) {
			a, b := c.shared(16)
			key := c.slotOf(a).Key()
			before := c.store.Rows()[key].Writer
			c.rewrite(key, says)
			d := c.start("d", Numbered(16))
			c.until(lease/10, "d to join", func() bool { return strings.Contains(d.log.String(), "msg=joined") })
			c.until(3*lease, "b and d to share", spreadOver(16, b, d))
			c.rewrite(key, before)
			c.until(3*lease, "an even spread", spreadOver(16, a, b, d))
			c.end(a, b, d)
		})
	}
}

const long = 3 * lease

// withLong starts a member with a long lease and one with a different lease, which share n partitions.
func (c *cluster) withLong(n int) (a, b *process) {
	a, b = c.start("a", Numbered(n), spindle.WithLease(long)), c.start("b", Numbered(n))
	c.until(long, "an even spread", spreadOver(n, a, b))
	c.sleep(3 * long)
	return a, b
}

// The lease of a member whose lease row was deleted still counts for the members that have seen it, because the member
// may not know about the deletion yet. By their own shorter leases, its term would end while it works. It makes no
// difference whether the row was garbled before.
func TestAMemberWhoseLeaseRowIsGoneIsNotOverBeforeItsLease(t *testing.T) {
	for _, garbled := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			a, b := c.withLong(16)
			slot := c.slotOf(a)
			a.link.Cut()
			if garbled {
				c.rewrite(slot.Key(), unreadable[1])
				c.sleep(lease) // b makes a look
			}
			c.remove(slot.Key())
			last := c.store.Rows()[slot.Name].Heartbeat
			c.until(2*long, "b to have all", spreadOver(16, b))
			assert.GreaterOrEqual(t, time.Since(last), long, "garbled before: %v", garbled)
			assert.Less(t, time.Since(last), long+lease/10, "garbled before: %v", garbled)
			a.link.Mend()
			c.until(15*long, "an even spread", spreadOver(16, a, b))
			c.end(a, b)
		})
	}
}

// The same is true for slots. A member that has lost its slot and joins again does not take the slot of a member that
// may still act by its lease.
func TestAMemberThatJoinsAgainTakesNoSlotBeforeItsLeaseHasEnded(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.withLong(16)
		of, own := c.slotOf(a), c.slotOf(b)
		c.rewrite(own.Key(), unreadable[0]) // no process can take its own slot
		a.link.Cut()
		b.link.Cut()
		c.remove(of.Key())
		last := c.store.Rows()[of.Name].Heartbeat
		c.sleep(lease + lease/2)
		b.link.Mend()
		c.until(lease/2, "b to join again", func() bool { return strings.Count(b.log.String(), "msg=joined") == 2 })
		assert.Equal(t, of.Token, table.TokenAt(c.store.Rows()[of.Name].Token))
		c.until(2*long, "b to have what a had", func() bool { return b.has() == 8 })
		assert.GreaterOrEqual(t, time.Since(last), long)
		a.link.Mend()
		c.remove(own.Key())
		c.until(15*long, "an even spread", spreadOver(16, a, b))
		c.end(a, b)
	})
}

// If a member's lease row can't be read, it is unknown how long the member may act, so its term does not end by itself.
// It ends once the row is corrected or the slot is freed.
func TestAMemberWhoseLeaseRowCanNotBeReadIsNotOverByItself(t *testing.T) {
	for damage, damaged := range map[string]func(c *cluster, slot table.LeaseRef){
		"its lease row": func(c *cluster, slot table.LeaseRef) { c.rewrite(slot.Key(), unreadable[1]) },
		"an orphan lease, and its own is gone": func(c *cluster, slot table.LeaseRef) {
			c.remove(slot.Key())
			c.operate(table.Write{Kind: table.Insert, Name: table.LeaseKey(slot.Name, slot.Token-1), Set: []table.Cell{{Column: table.ColWriter, Value: "?"}}})
		},
	} {
		for _, seen := range []bool{true, false} {
			inVirtualTime(t, func(c *cluster) {
				a, b := c.start("a", Numbered(16), spindle.WithLease(long)), c.process("b", Numbered(16))
				c.until(long, "a to have all", spreadOver(16, a))
				if seen { // whether its lease was seen
					c.run(b)
					c.until(2*long, "an even spread", spreadOver(16, a, b))
				}
				c.sleep(3 * long)
				has, slot := b.has(), c.slotOf(a)
				a.link.Cut()
				said := c.store.Rows()[slot.Key()]
				damaged(c, slot)
				if !seen {
					c.run(b)
				}
				c.sleep(2 * long)
				assert.Zero(t, a.has(), damage)
				assert.Equal(t, has, b.has(), "%s can't be read; b had seen it: %v", damage, seen)
				c.remove(table.LeaseKey(slot.Name, slot.Token-1))
				c.operate(table.Write{Kind: table.Put, Name: slot.Key(), Set: []table.Cell{{Column: table.ColHeartbeat, Value: said.Heartbeat},
					{Column: table.ColToken, Value: said.Token}, {Column: table.ColWriter, Value: said.Writer}}})
				c.until(2*lease, "b to have all", spreadOver(16, b))
				a.link.Mend()
				c.until(15*long, "an even spread", spreadOver(16, a, b))
				c.end(a, b)
			})
		}
	}
}

// After the row of a plain lock with a partition's name is deleted, the lock may be acted on for one more lease, even
// if the row was already missing once before.
func TestAnAbsenceCountsFromWhenTheRowWasThereLast(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		tab, name := table.Table{Store: c.store}, table.PartitionName("orders", "0")
		deleted := func(leases time.Duration) (key string) { // a term whose holder does not know yet that its row was deleted
			seen, err := tab.LookAtLeases(t.Context(), time.Now(), name)
			require.NoError(t, err)
			token, err := tab.Claim(t.Context(), "plain", seen...)
			require.NoError(t, err)
			require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: leases, ID: "plain"}, name))
			c.remove(name)
			return table.LeaseKey(name, token)
		}
		first := deleted(5 * lease)
		var again time.Time
		a := c.process("a", Numbered(1))
		a.link.Refuse(func(step string) error {
			if step != "claim-partitions" || !again.IsZero() {
				return nil
			}
			again = time.Now()
			deleted(5 * lease)
			return table.ErrChanged // another process was first
		})
		c.run(a)
		c.sleep(2 * lease)
		require.Zero(t, a.has())
		c.operate(table.Write{Kind: table.Delete, Name: first}, table.Write{Kind: table.Insert, Name: name, Set: []table.Cell{{Column: table.ColToken, Value: table.Now}}})
		c.until(20*lease, "a to have it", spreadOver(1, a))
		require.False(t, again.IsZero())
		assert.InDelta(t, 5*lease, time.Since(again), float64(lease/2))
		c.end(a)
	})
}
