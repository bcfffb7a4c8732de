package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
				assert.ErrorContains(t, err, `partition "7" has been impossible to claim or release since `)
				assert.NoError(t, p.Live(nil), "a restart would mend nothing")
				sick++
			}
		}
		assert.Equal(t, 1, sick)
		for _, p := range rest {
			if p.Health() != nil {
				c.loseTerm(p)
				c.until(lease, "it to be back", func() bool { return strings.Count(p.log.String(), "msg=joined") == 2 })
				assert.False(t, c.recordOf(p).Trial, "it was not useless")
			}
		}
		row.Store("")
		c.until(5*lease, "all to be worked on", func() bool { return c.worked() == n })
	})
}

// A look that fails does not show that the group is empty. A member that could claim nothing stays out of the group for
// its whole cool-down, even in an outage. Otherwise, it would keep its share from the healthy members again. The log tells of the outage.
func TestAnOutageEndsNoCoolDown(t *testing.T) {
	for _, answered := range []bool{true, false} {
		inVirtualTime(t, func(c *cluster) {
			c.alone(4)
			b, no := c.process("b", Numbered(4)), errors.New("not today")
			b.link.Refuse(fleet.Refusing("claim-partitions", no))
			c.run(b)
			joins := func() int { return strings.Count(b.log.String(), "msg=joined") }
			c.until(20*lease, "a cool-down of four leases", func() bool { return strings.Count(b.log.String(), "msg=left") == 4 })
			if answered {
				b.link.Refuse(func(string) error { return no })
			} else {
				b.link.Cut()
			}
			b.log.Reset()
			c.sleep(3 * lease)
			assert.Contains(t, b.log.String(), "still trying", "answered: %v", answered)
			b.log.Reset()
			b.link.Mend()
			b.link.Refuse(nil)
			c.sleep(lease * 9 / 10)
			assert.Zero(t, joins(), "answered: %v", answered)
			c.until(3*lease, "b to join", func() bool { return joins() == 1 })
		})
	}
}

// A term that ends although Spanner answers some of the member's requests is no outage: the process cools down, whichever requests fail.
func TestATermThatEndsThoughSpannerAnswersCostsACoolDown(t *testing.T) {
	for what, fails := range map[string][]string{"heartbeats": {"heartbeat"}, "looks": {"look"}, "both": {"heartbeat", "look"}} {
		inVirtualTime(t, func(c *cluster) {
			c.start("b", Numbered(4)) // while it lives, cool-downs are not cut short
			c.sleep(3 * lease)
			a := c.process("a", Numbered(4))
			a.link.Refuse(func(step string) error {
				if a.has() > 0 && slices.Contains(fails, step) {
					return errors.New("not today")
				}
				return nil
			})
			c.run(a)
			c.sleep(30 * lease)
			terms := strings.Count(a.log.String(), "msg=joined")
			assert.Equal(t, len(fails) == 2, terms > 10, "%s: %d terms", what, terms)
		})
	}
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
		for _, p := range ps {
			p.link.After(func(step string) {
				if step == "evict" {
					time.Sleep(lease / 10)
				}
			})
		}
		dead, rest := ps[2:], ps[:2]
		for _, p := range dead {
			p.kill()
		}
		rest[0].link.Counts()
		rest[1].link.Counts()
		assert.Less(t, c.until(4*lease, "the rest to have all", spreadOver(n, rest...)), 2*lease)
		assert.LessOrEqual(t, rest[0].link.Counts()["evict"]+rest[1].link.Counts()["evict"], 16)
		assert.NotContains(t, rest[0].log.String()+rest[1].log.String(), "msg=left", "they went on polling")
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
	})
}

// The short lease of one member does not make the others look as often as that lease would require.
func TestOneShortLeaseMakesNobodyLookMoreThanTenTimesALease(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, _ := c.shared(16)
		c.start("d", Numbered(16), spindle.WithLease(lease/100))
		c.sleep(5 * lease)
		a.link.Counts()
		c.sleep(5 * lease)
		assert.LessOrEqual(t, a.link.Counts()["look"], 55)
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
			assert.Contains(t, a.log.String(), "no poll of the group succeeded in time")
			a.link.Refuse(nil)
			c.clash = nil // the work that hangs has no partition any more
			free()
		})
	}
}

// Many warnings with the same cause are logged as one line.
func TestLeaseRowsThatAreGoneAreOneWarning(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(500)
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
	})
}

// When a member stops, the context of its work ends immediately, or a handover later, even if the member is waiting for the
// response to a look.
func TestAStopWaitsForNoLook(t *testing.T) {
	for _, handover := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			var opts []Option
			ends := time.Duration(0)
			if handover {
				opts, ends = append(opts, spindle.WithHandover()), lease/3
			}
			a := c.alone(4, opts...)
			c.sleep(2 * lease)
			a.link.Lose(func(step string) bool { return step == "look" }, nil)
			c.sleep(lease/3 + lease/50) // it makes a look, and waits for the response
			a.stop()
			took := c.until(lease, "work to end", func() bool { return a.has() == 0 && c.worked() == 0 })
			assert.InDelta(t, ends, took, float64(ends/6))
			assert.NoError(t, <-a.done)
		})
	}
}

// A member is useless only while its failures are its own: of two partitions that fail by themselves, one that another
// holder has no longer counts.
func TestAPartitionThatAnotherHolderHasIsNoFailureOfTheMember(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		var zero, one atomic.Value
		zero.Store(table.PartitionName("orders", "0"))
		one.Store(table.PartitionName("orders", "1"))
		b := c.process("b", Numbered(3))
		b.link.Store = poison{poison{c.store, &zero}, &one}
		c.run(b)
		c.until(lease, "b to fail", func() bool { return strings.Contains(b.log.String(), "the lock was not given") })
		c.sleep(lease) // both have failed by themselves
		l, _ := c.lock(table.PartitionName("orders", "1"), "operator")
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		require.NoError(t, l.Run(ctx, done))
		c.until(lease, "the operator to hold it", func() bool { has, _ := l.HasLock(); return has })
		c.sleep(6 * lease)
		assert.NotContains(t, b.log.String(), "msg=left", "a single partition that fails may be one that nobody can claim")
		stop()
		<-done
	})
}

// A member that hands over while its heartbeats fail ends its work while there is time for it to return.
func TestAHandoverEndsEarlyIfHeartbeatsFail(t *testing.T) {
	for _, failing := range []time.Duration{lease * 2 / 5, lease / 2, lease * 13 / 20} {
		inVirtualTime(t, func(c *cluster) {
			a := c.start("a", Numbered(4), spindle.WithHandover())
			c.until(2*lease, "work", spreadOver(4, a))
			c.sleep(5 * lease)
			var acked atomic.Int64
			a.link.After(func(step string) {
				if step == "heartbeat" {
					acked.Store(time.Now().UnixNano())
				}
			})
			c.sleep(lease)
			a.link.Refuse(fleet.Refusing("heartbeat", errors.New("no")))
			c.sleep(failing)
			a.stop()
			limit := max(lease/40, lease*85/100-time.Since(time.Unix(0, acked.Load()))) // a sixth of the lease is for the work to return
			assert.LessOrEqual(t, c.until(3*lease, "no work", func() bool { return c.worked() == 0 }), limit)
			a.link.Refuse(nil)
			c.sleep(3 * lease)
		})
	}
}
