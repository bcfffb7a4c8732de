package group

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
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

// recordOf returns what the row of the process's member says.
func (c *cluster) recordOf(p *process) *table.LeaseRecord {
	c.t.Helper()
	s, err := table.Table{Store: c.store}.LookAtGroup(c.t.Context(), "orders", table.GroupQuery{Members: true})
	require.NoError(c.t, err)
	return s.Members[c.slotOf(p).Name].LeaseRecord
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
		a := c.alone(16)
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
		})
	}
}

// Whatever else a look reads, it shows a member which of its lease rows are gone. In a large group, most looks don't read
// the members, and a member that noticed nothing in them would go on working on what others may have claimed.
func TestEachLookOfACrowdShowsWhichRowsAreGone(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const crowd = 3 * manyMembers
		a := c.alone(4)
		c.sleep(2 * lease)
		var others []table.Write
		for i := range crowd { // members that have just joined, so they don't count yet
			heartbeat := time.Now().UTC()
			others = append(others, otherMember(100+i, heartbeat.Add(-lease/2), heartbeat, `{"lease":"10h","plan":"other"}`)...)
		}
		c.operate(others...)
		look := func() (reads int, read int64) {
			a.link.Counts()
			c.rows.Store(0)
			c.until(lease, "a look", func() bool { reads = a.link.Counts()["look"]; return reads > 0 })
			return reads, c.rows.Load()
		}
		without := 0
		for i := range 4 {
			c.sleep(3 * lease)
			for range i {
				look()
			}
			_, before := a.Has("2")
			require.NotZero(t, before)
			c.remove(a.leaseRow("2"))
			if reads, read := look(); read < int64(reads*2*crowd) { // if rows are gone, the next look follows at once
				without++
			}
			_, after := a.Has("2")
			assert.NotEqual(t, before, after)
		}
		assert.Positive(t, without, "looks that did not read the members")
	})
}

// A member of a large group, which reads the members in few of its looks, claims a partition as soon as the program resumes it. It also
// writes a new weight at once, and tries a release that failed again within a tenth of a lease.
func TestARequestInACrowdTakesEffectAtOnce(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(4)
		c.sleep(2 * lease)
		var others []table.Write
		for i := range 3 * manyMembers { // members that have just joined, so they don't count yet
			heartbeat := time.Now().UTC()
			others = append(others, otherMember(100+i, heartbeat.Add(-lease/2), heartbeat, `{"lease":"10h","plan":"other"}`)...)
		}
		c.operate(others...)
		given := []table.Write{{Kind: table.Update, Name: table.PartitionName("orders", "2"), Set: []table.Cell{
			{Column: table.ColHeartbeat}, {Column: table.ColToken, Value: table.Now}, {Column: table.ColWriter}}}}
		require.NoError(t, a.Pause("2"))
		for i := range 4 {
			c.sleep(3 * lease)
			a.link.Counts()
			for range i {
				c.until(lease, "a look", func() bool { return a.link.Counts()["look"] > 0 })
			}
			require.NoError(t, a.Resume("2"))
			c.until(lease/50, "a to have all", spreadOver(4, a))
			require.NoError(t, a.Pause("2"))
			c.sleep(3 * lease)
			for range i {
				c.until(lease, "a look", func() bool { return a.link.Counts()["look"] > 0 })
			}
			require.NoError(t, a.SetWeight(i+2))
			c.until(lease/50, "the weight to be written", func() bool { return c.recordOf(a).Weight == i+2 })
			leftOut := memstore.Once("claim-partitions")
			a.link.Refuse(func(step string) error {
				if leftOut(step) {
					return c.store.Commit(t.Context(), "another", given) // another process claimed and released it
				}
				return nil
			})
			require.NoError(t, a.Resume("2"))
			c.until(lease/20, "a to have all, although its claim left 2 out", spreadOver(4, a))
			a.link.Refuse(nil)
			c.sleep(3 * lease)
			for range i {
				c.until(lease, "a look", func() bool { return a.link.Counts()["look"] > 0 })
			}
			fails := memstore.Once("release-partitions")
			a.link.Refuse(func(step string) error {
				if fails(step) {
					return errors.New("not today")
				}
				return nil
			})
			require.NoError(t, a.Pause("2"))
			c.until(lease/10, "2 to be free", func() bool { return c.store.Rows()[table.PartitionName("orders", "2")].Heartbeat.IsZero() })
		}
	})
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
		})
	}
}

// A member whose lock row was deleted is over one lease later, also for members that can't read another row of the group.
// Such a row may stay for long, for example if a newer version has written it.
func TestARowThatCanNotBeReadHidesNoDeletedMember(t *testing.T) {
	for _, says := range unreadable {
		inVirtualTime(t, func(c *cluster) {
			a, b := c.shared(18)
			d := c.start("d", Numbered(18))
			c.until(4*lease, "an even spread", spreadOver(18, a, b, d))
			c.rewrite(c.slotOf(d).Key(), says)
			c.sleep(lease) // the others have seen that they can't read it
			b.link.Cut()
			c.remove(c.slotOf(b).Name)
			c.until(3*lease, "the others to have all: "+says, func() bool { return a.has()+d.has() == 18 })
		})
	}
}
