package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// These tests are about faults that affect many members at the same time, or last long.

// Outages of Spanner say nothing about a process. However many there were, all partitions have work within two leases
// of the end of each outage, and every member is healthy.
func TestOutagesThatAllMembersHaveCostNoCoolDown(t *testing.T) {
	for _, members := range []int{1, 3} {
		inVirtualTime(t, func(c *cluster) {
			const n = 30
			var ps []*process
			for i := range members {
				ps = append(ps, c.start(fmt.Sprint(i), Numbered(n), WithInitialDelay(lease/3)))
			}
			c.until(2*lease, "an even spread", spreadOver(n, ps...))
			c.sleep(10 * lease)
			for i := range 8 {
				for _, p := range ps {
					p.link.Cut()
				}
				c.sleep(lease/2 + time.Duration(i)*lease*3/10)
				for _, p := range ps {
					p.link.Mend()
				}
				took := c.until(2*lease, "all to be worked on", func() bool { return c.worked() == n })
				assert.Less(t, took, lease, "outage %d", i)
				c.sleep(lease / 2)
				for _, p := range ps {
					assert.NoError(t, p.Health())
				}
				c.sleep(4 * lease)
			}
			c.end(ps...)
		})
	}
}

// poison is a table in which no member can claim one of the partitions, as if a long transaction had locked its row.
type poison struct {
	table.Store
	row *atomic.Value // a string; if there is none, all partitions can be claimed
}

// Transact implements table.Store.
func (s poison) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	row, on := s.row.Load().(string)
	if step != "claim-partitions" || !on || row == "" {
		return s.Store.Transact(ctx, step, fn)
	}
	hit := false
	at, err := s.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		for _, w := range writes {
			hit = hit || w.Name == row
		}
		if err == nil && hit {
			err = errors.New("its row is locked")
		}
		return writes, err
	})
	if hit {
		<-ctx.Done()
		return time.Time{}, status.Error(codes.DeadlineExceeded, "the lock was not given")
	}
	return at, err
}

// One partition that no member can claim has almost no effect on the other partitions, and ends no healthy member's
// term. The member to which it is assigned reports it.
func TestOnePartitionThatNobodyCanClaimCostsTheOthersNothing(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 60
		var row atomic.Value
		var ps []*process
		for i := range 4 {
			p := c.process(fmt.Sprint(i), Numbered(n))
			p.link.Store = poison{c.store, &row}
			c.run(p)
			ps = append(ps, p)
		}
		c.until(2*lease, "an even spread", spreadOver(n, ps...))
		c.sleep(10 * lease)
		row.Store(table.PartitionName("orders", "7"))
		var victim *process
		var rest []*process
		for _, p := range ps {
			if has, _ := p.Has("7"); has {
				victim = p
			} else {
				rest = append(rest, p)
			}
		}
		victim.kill()
		c.sleep(2 * lease)
		worked, samples := 0, 0
		for range 300 {
			c.sleep(lease / 10)
			worked, samples = worked+c.worked(), samples+n-1
		}
		assert.GreaterOrEqual(t, float64(worked)/float64(samples), 0.99)
		sick := 0
		for _, p := range rest {
			assert.NotContains(t, p.log.String(), "msg=left")
			if err := p.Health(); err != nil {
				assert.ErrorContains(t, err, `partition "7" could not be claimed or released since `)
				assert.NoError(t, p.Live(nil), "a restart would mend nothing")
				sick++
			}
		}
		assert.Equal(t, 1, sick)
		for _, p := range rest {
			if p.Health() != nil {
				c.loseTerm(p)
				c.until(lease, "it to be back", func() bool { return strings.Count(p.log.String(), "msg=joined") == 2 })
				assert.False(t, c.onTrial(p), "it was not useless")
			}
		}
		row.Store("")
		c.until(5*lease, "all to be worked on", func() bool { return c.worked() == n })
		c.end(rest...)
		<-victim.done
	})
}

// All members that died at the same time are evicted in one commit, so Spanner's response time hardly matters.
func TestAllThatDiedAtOnceAreEvictedTogether(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 100
		far := &memstore.Locking{Store: c.store, OneWay: lease / 100, Paxos: time.Millisecond, Refusal: time.Millisecond}
		var ps []*process
		for i := range 50 {
			p := c.process(fmt.Sprint(i), Numbered(n))
			p.link.Store = far
			ps = append(ps, p)
			c.run(p)
		}
		c.until(20*lease, "an even spread", spreadOver(n, ps...))
		c.sleep(3 * lease)
		dead, rest := ps[2:], ps[:2]
		for _, p := range dead {
			p.kill()
		}
		rest[0].link.Counts()
		rest[1].link.Counts()
		assert.Less(t, c.until(4*lease, "the rest to have all", spreadOver(n, rest...)), 2*lease)
		assert.LessOrEqual(t, rest[0].link.Counts()["evict"]+rest[1].link.Counts()["evict"], 16)
		c.end(rest...)
		for _, p := range dead {
			<-p.done
		}
	})
}

// A member whose requests take a fifth of its lease can hold its partitions, just as it could hold a plain lock.
func TestAMemberFarFromSpannerWithAShortLeaseWorks(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		short := time.Second
		far := &memstore.Locking{Store: c.store, OneWay: short / 10, Paxos: time.Millisecond, Refusal: time.Millisecond}
		var ps []*process
		for i := range 3 {
			p := c.process(fmt.Sprint(i), Numbered(30), spindle.WithLease(short))
			p.link.Store = far
			c.run(p)
			ps = append(ps, p)
		}
		c.until(10*short, "an even spread", spreadOver(30, ps...))
		idle := 0
		for range 600 {
			c.sleep(short / 10)
			idle += 30 - c.worked()
		}
		assert.Less(t, float64(idle)/600/30, 0.01)
		for _, p := range ps {
			assert.NotContains(t, p.log.String(), "msg=left")
		}
		c.end(ps...)
	})
}

// The short lease of one member does not make the others look as often as that lease would require.
func TestOneShortLeaseMakesNobodyLookMoreThanTenTimesALease(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(16)
		d := c.start("d", Numbered(16), spindle.WithLease(lease/100))
		c.sleep(5 * lease)
		a.link.Counts()
		c.sleep(5 * lease)
		assert.LessOrEqual(t, a.link.Counts()["look"], 55)
		c.end(a, b, d)
	})
}

// A member that can't see the group ends its term and reports the actual reason. Its partitions are free immediately if
// its work has returned.
func TestAMemberThatCanNotLookReleasesWhatItHas(t *testing.T) {
	for _, hangs := range []time.Duration{0, lease / 5} { // how long it waits for work that hangs
		inVirtualTime(t, func(c *cluster) {
			a, b := c.shared(16)
			free := c.hung(a)
			if hangs == 0 {
				free()
			}
			a.link.Refuse(fleet.Refusing("look", errors.New("not today")))
			c.until(lease+lease/50+hangs, "a to leave", func() bool { return strings.Contains(a.log.String(), "msg=left") })
			c.until(lease/2+5*hangs, "b to have all", spreadOver(16, b))
			assert.Contains(t, a.log.String(), "no poll of the group was answered in time")
			a.link.Refuse(nil)
			c.clash = nil // the work that hangs has no partition any more
			free()
			c.end(a, b)
		})
	}
}

// onTrial reports whether the term of a process is on trial.
func (c *cluster) onTrial(p *process) bool {
	c.t.Helper()
	s, err := table.Table{Store: c.store}.LookAtGroup(c.t.Context(), "orders", table.GroupQuery{Members: true})
	require.NoError(c.t, err)
	return s.Members[c.slotOf(p).Name].LeaseRecord.Trial
}

// Many warnings with the same cause are logged as one line.
func TestLeaseRowsThatAreGoneAreOneWarning(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(500))
		c.until(lease, "a to have all", spreadOver(500, a))
		var writes []table.Write
		for name := range c.partitionRows() {
			if strings.Contains(name, "_") {
				writes = append(writes, table.Write{Kind: table.Delete, Name: name})
			}
		}
		c.operate(writes...)
		c.sleep(2 * lease)
		assert.Equal(t, 500, a.has())
		assert.Equal(t, 1, strings.Count(a.log.String(), "level=WARN"))
		assert.Contains(t, a.log.String(), "partitions=500")
		c.end(a)
	})
}

// A process that crashes again and again, and reclaims its slot each time, gets no partitions until it has run for one
// lease.
func TestACrashLoopWithReclaimKeepsItsShareFromNobody(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 16
		a, b := c.shared(n, spindle.WithReclaim())
		idle, samples := 0, 0
		for range 40 {
			b.kill()
			<-b.done
			b = c.start("b", Numbered(n), spindle.WithReclaim())
			for range 8 {
				c.sleep(lease / 10)
				idle, samples = idle+n-c.worked(), samples+n
			}
		}
		assert.Less(t, float64(idle)/float64(samples), 0.1)
		assert.Equal(t, n, a.has())
		c.end(a, b)
	})
}

// Commits run in parallel, so a member far from Spanner that has many partitions to claim does not wait for one commit
// after the other.
func TestClaimsGoSideBySide(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n, batch = 160, 10
		a := c.process("a", Numbered(n), batchesOf(batch))
		a.link.After(func(step string) {
			if step == "claim-partitions" || step == "confirm-partitions" {
				time.Sleep(lease / 50)
			}
		})
		c.run(a)
		took := c.until(lease, "a to have all", spreadOver(n, a))
		assert.Less(t, took, 2*n/batch*lease/50/3, "a third of what one after the other takes")
		c.end(a)
	})
}

// A handover begins and ends in time even if a look gets no response.
func TestAHandoverWaitsForNoLook(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(4), spindle.WithHandover())
		c.until(lease, "a to have all", spreadOver(4, a))
		c.sleep(2 * lease)
		a.link.Lose(func(step string) bool { return step == "look" }, nil)
		c.sleep(lease/3 + lease/50) // it makes a look, and waits for the response
		a.stop()
		took := c.until(lease, "work to end", func() bool { return a.has() == 0 })
		assert.InDelta(t, lease/3, took, float64(lease/20))
		assert.NoError(t, <-a.done)
	})
}

// A claim that fails while another member is away does not count against a member once the other one has returned and
// taken its partitions. If it did, the member would leave a little later, because one partition still fails.
func TestClaimsThatAnotherMemberHasMadeSinceDoNotCount(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 12
		bad := table.PartitionName("orders", "7")
		var row atomic.Value
		member := func(id string) *process {
			p := c.process(id, Numbered(n), WithIdentity(10*lease), spindle.WithHeartbeat(lease/10))
			p.link.Store = poison{c.store, &row}
			c.run(p)
			return p
		}
		a, b := member("a"), member("b")
		c.until(2*lease, "an even spread", spreadOver(n, a, b))
		row.Store(bad)
		if has, _ := a.Has("7"); has {
			a, b = b, a
		}
		b.kill() // it has the bad partition
		c.until(3*lease, "a to have the others", func() bool { return a.has() == n-1 })
		b = member(b.id)
		c.until(5*lease, "an even spread of the others", func() bool { return a.has()+b.has() == n-1 && min(a.has(), b.has()) == n/2-1 })
		c.sleep(4 * lease)
		if b.Health() != nil { // a shall be the one to which the bad partition is assigned
			a, b = b, a
		}
		require.ErrorContains(t, a.Health(), "partition \"7\"")

		b.kill()
		a.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not today")))
		c.until(2*lease, "b to be evicted", func() bool { return a.link.Counts()["evict"] > 0 })
		c.sleep(lease / 10) // a fails at what b had
		require.Equal(t, n/2-1, a.has())
		b = member(b.id)
		c.until(lease*3/2, "b to have its share again", func() bool { return b.has() >= n/2-1 })
		a.link.Refuse(nil)
		c.sleep(5 * lease)
		assert.NotContains(t, a.log.String(), "msg=left")
		c.end(a, b)
	})
}

// A partition that can't be claimed and then is paused does not end the term of a member that has no other.
func TestAPartitionThatIsPausedCountsNoLonger(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(1))
		a.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not today")))
		c.run(a)
		c.until(lease, "a to fail", func() bool { return strings.Contains(a.log.String(), "not today") })
		require.NoError(t, a.Pause("0"))
		c.sleep(5 * lease)
		assert.NotContains(t, a.log.String(), "msg=left")
		assert.NoError(t, a.Health())
		a.link.Refuse(nil)
		require.NoError(t, a.Resume("0"))
		c.until(lease, "a to have it", spreadOver(1, a))
		c.end(a)
	})
}

// A member without partitions is useless only while its failures are its own. Once another holder has the partition at
// which it failed, it can do nothing, so it stays, is healthy, and claims the partition when that holder is gone.
func TestAMemberWhoseOnlyPartitionAnotherHolderHasIsNotUseless(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		b := c.process("b", Numbered(1))
		b.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not today")))
		c.run(b)
		c.until(lease, "b to fail", func() bool { return strings.Contains(b.log.String(), "not today") })
		l, _ := c.lock(table.PartitionName("orders", "0"), "operator")
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		require.NoError(t, l.Run(ctx, done))
		c.until(lease, "the operator to hold it", func() bool { has, _ := l.HasLock(); return has })
		b.link.Refuse(nil)
		for range 6 {
			c.sleep(lease)
			assert.NoError(t, b.Health())
		}
		assert.NotContains(t, b.log.String(), "msg=left")
		stop()
		<-done
		c.until(lease/2, "b to have it", spreadOver(1, b))
		c.end(b)
	})
}
