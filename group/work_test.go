package group

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// doing starts a member whose work is do.
func (c *cluster) doing(id string, partitions Partitions, do func(ctx context.Context, p Partition) error, opts ...Option) *process {
	p := c.process(id, partitions, opts...)
	p.do = do
	c.run(p)
	return p
}

// Work that returns early is started again under the same token, whatever it returned. At first it is started
// immediately, and then after longer and longer pauses. This is logged once.
func TestWorkThatReturnsEarlyBeginsAgain(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		var mu sync.Mutex
		var begun []time.Time
		tokens := map[spindle.Token]bool{}
		a := c.doing("a", Numbered(1), func(ctx context.Context, p Partition) error {
			mu.Lock()
			defer mu.Unlock()
			begun, tokens[p.Token()] = append(begun, time.Now()), true
			return errors.New("the queue is away")
		})
		c.sleep(10 * lease)
		n := len(begun)
		require.Greater(t, n, 12)
		assert.Len(t, tokens, 1)
		assert.Less(t, begun[1].Sub(begun[0]), lease/20)
		assert.InDelta(t, lease, begun[n-1].Sub(begun[n-2]), float64(lease/8))
		has, _ := a.Has("0")
		assert.True(t, has, "the partition stays")
		assert.Equal(t, 1, strings.Count(a.log.String(), "level=WARN"))
		assert.Contains(t, a.log.String(), "the queue is away")
	})
}

// Work that waits to begin again does not begin once its partition was released, even if the member has claimed it again.
func TestWorkDoesNotBeginAgainUnderAnEarlierToken(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		var mu sync.Mutex
		begun := map[spindle.Token]int{}
		a := c.doing("a", Numbered(1), func(ctx context.Context, p Partition) error {
			mu.Lock()
			begun[p.Token()]++
			first := len(begun) == 1
			mu.Unlock()
			if !first {
				<-ctx.Done()
			}
			return nil
		})
		c.sleep(3 * lease) // the pauses have grown
		_, before := a.Has("0")
		n := begun[before]
		require.NoError(t, a.LetGo("0"))
		c.sleep(3 * lease)
		has, now := a.Has("0")
		require.True(t, has)
		assert.Equal(t, map[spindle.Token]int{before: n, now: 1}, begun)
	})
}

// Work that has run for a lease is started again soon, because earlier problems no longer count.
func TestThePauseBeforeWorkBeginsAgainIsForgottenOnceItRuns(t *testing.T) {
	for do, least := range map[EarlyReturn]int{BeginAgain: 100, Release: 48} { // each ten take about 7 or 17 leases, and with the longest pauses 12 or 30
		inVirtualTime(t, func(c *cluster) {
			var runs atomic.Int32
			c.doing("a", Numbered(1), func(ctx context.Context, p Partition) error {
				if runs.Add(1)%10 == 0 {
					time.Sleep(2 * lease)
				}
				return nil
			}, WithEarlyReturn(do))
			c.sleep(100 * lease)
			assert.Greater(t, int(runs.Load()), least)
		})
	}
}

// Depending on an option, a partition whose work returns early stays idle or is released for a while.
func TestWhatHappensWhenWorkReturnsEarlyIsAnOption(t *testing.T) {
	for _, do := range []EarlyReturn{KeepIdle, Release} {
		inVirtualTime(t, func(c *cluster) {
			var mu sync.Mutex
			begun, tokens := 0, map[spindle.Token]bool{}
			a := c.doing("a", Numbered(1), func(ctx context.Context, p Partition) error {
				mu.Lock()
				defer mu.Unlock()
				begun++
				tokens[p.Token()] = true
				return nil
			}, WithEarlyReturn(do))
			c.sleep(20 * lease)
			has, _ := a.Has("0")
			if do == KeepIdle {
				assert.Equal(t, 1, begun)
				assert.True(t, has)
			} else {
				assert.Len(t, tokens, begun, "each under a token of its own")
				assert.InDelta(t, 11, begun, 3, "a tenth of a lease later at first, then up to three")
				assert.False(t, has)
			}
			c.end(a)
			before := begun
			c.run(a)
			c.until(lease/10, "a second Run to begin the work", func() bool { mu.Lock(); defer mu.Unlock(); return begun > before })
		})
	}
}

// A paused partition belongs to no member until it is resumed under a new token. Other partitions are not disturbed.
func TestAPartitionIsPausedAndResumed(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(8)
		name := a.Held()[0].Name()
		_, before := a.Has(name)
		c.begins()
		require.NoError(t, a.Pause(name))
		c.sleep(5 * lease)
		has, _ := a.Has(name)
		assert.False(t, has)
		assert.Equal(t, 7, c.worked())
		assert.NoError(t, a.Health())
		assert.NoError(t, a.Balanced(context.Background()))
		require.NoError(t, a.Resume(name))
		c.until(lease/20, "all to be worked on", func() bool { return c.worked() == 8 })
		_, after := a.Has(name)
		assert.Greater(t, after, before)
		assert.Equal(t, 1, c.begins())
		require.NoError(t, a.Pause(name))
		c.until(lease/20, "a to release it", func() bool { return c.worked() == 7 })
		a.stop()
		<-a.done
		c.until(lease, "b to have all: it is not paused there", spreadOver(8, b))
		assert.ErrorContains(t, b.Pause("99"), `pause: group "orders": partition "99" is not in the list`)
		assert.Error(t, b.Resume("99"))
		assert.Error(t, b.LetGo("99"))
	})
}

// The work of a partition that is let go is not waited for, so the partition moves while its work hangs.
func TestAPartitionWhoseWorkHangsIsLetGo(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(4)
		free := c.hung(a)
		c.sleep(2 * lease)
		b := c.start("b", Numbered(4))
		c.until(3*lease, "a to revoke two", func() bool { return a.has() == 2 })
		c.sleep(2 * lease)
		require.Zero(t, b.has())
		for _, e := range a.partitions {
			if has, _ := a.Has(e.name); !has {
				require.NoError(t, a.LetGo(e.name))
			}
		}
		c.until(lease/2, "b to have its share", func() bool { return b.has() == 2 })
		assert.Len(t, c.clash, 2)
		c.clash = nil // this is what LetGo was called for
		free()
		c.sleep(lease)
		assert.Equal(t, 2, a.has())
	})
}

// A partition that is let go while its member should have it is released at once, although its work does not return.
func TestAPartitionThatIsLetGoIsReleasedAtOnce(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(4)
		free := c.hung(a)
		require.NoError(t, a.LetGo("0"))
		c.sleep(lease / 100)
		assert.Zero(t, c.store.Rows()[table.PartitionName("orders", "0")].Heartbeat)
		assert.Equal(t, 3, a.has())
		free()
	})
}

// A member claims a partition again as soon as the partition's work has returned, and not at the next regular poll, if the program has
// resumed the partition in the meantime or has let it go.
func TestAPartitionIsClaimedAgainOnceItsWorkHasReturned(t *testing.T) {
	for what, ends := range map[string]func(c *cluster, a *process) error{
		"resumed": func(c *cluster, a *process) error {
			err := a.Pause("0")
			c.sleep(lease / 20)
			return errors.Join(err, a.Resume("0"))
		},
		"let go": func(_ *cluster, a *process) error { return a.LetGo("0") },
		"let go, but not released": func(_ *cluster, a *process) error {
			a.link.Refuse(fleet.Refusing("release-partitions", errors.New("not today")))
			return a.LetGo("0")
		},
	} {
		inVirtualTime(t, func(c *cluster) {
			a := c.alone(2)
			free := c.hung(a)
			defer free()
			c.sleep(2 * lease)
			require.NoError(t, ends(c, a))
			c.sleep(lease / 20)
			a.link.Counts()
			c.until(lease, "a regular look", func() bool { return a.link.Counts()["look"] > 0 })
			require.Equal(t, 1, a.has(), what)
			free()
			c.until(lease/20, "a to have the partition that was "+what, spreadOver(2, a))
		})
	}
}

// A partition whose work returns early is claimed again after the pause that the option Release promises.
func TestThePauseAfterAnEarlyReturnIsATenthOfALease(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		begun := make(chan time.Time, 2)
		c.doing("a", Numbered(1), func(ctx context.Context, _ Partition) error {
			select {
			case begun <- time.Now():
			default:
				<-ctx.Done()
			}
			return nil
		}, WithEarlyReturn(Release))
		first := <-begun
		assert.InDelta(t, lease/10, (<-begun).Sub(first), float64(lease/50))
	})
}

// Work that runs for a lease and then ends because of a pause resets the pause of later early returns, just as work that returns by
// itself does.
func TestLongWorkThatIsRevokedResetsThePauseOfEarlyReturns(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		var returns atomic.Bool
		returns.Store(true)
		a := c.doing("a", Numbered(1), func(ctx context.Context, _ Partition) error {
			if !returns.Load() {
				<-ctx.Done()
			}
			return nil
		}, WithEarlyReturn(Release))
		c.sleep(20 * lease) // the pauses grow to three leases
		returns.Store(false)
		c.until(4*lease, "the work to run", func() bool { return a.has() == 1 })
		c.sleep(2 * lease)
		returns.Store(true)
		require.NoError(t, a.Pause("0"))
		c.sleep(lease / 20)
		require.NoError(t, a.Resume("0"))
		c.until(lease/20, "the work to return early", func() bool { return a.has() == 0 && c.view().Unassigned != nil })
		returns.Store(false)
		c.until(lease*2/10, "the work to begin again", func() bool { return a.has() == 1 })
	})
}

// Balanced returns when the member has its share, and blocks again while partitions move.
func TestBalancedWaitsForTheOwnShare(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		p := c.process("z", Numbered(8))
		assert.ErrorContains(t, p.Balanced(context.Background()), "Run was not called")
		a := c.start("a", Numbered(8))
		require.NoError(t, a.Balanced(context.Background()))
		assert.Equal(t, 8, a.has())
		c.sleep(2 * lease)
		free := c.hung(a)
		b := c.start("b", Numbered(8))
		c.until(3*lease, "a to revoke its half", func() bool { return a.has() == 4 })
		limited, cancel := context.WithTimeout(context.Background(), lease)
		defer cancel()
		assert.ErrorIs(t, a.Balanced(limited), context.DeadlineExceeded)
		limited, cancel = context.WithTimeout(context.Background(), lease)
		defer cancel()
		assert.ErrorIs(t, b.Balanced(limited), context.DeadlineExceeded)
		free()
		require.NoError(t, a.Balanced(context.Background()))
		require.NoError(t, b.Balanced(context.Background()))
		assert.Equal(t, []int{4, 4}, []int{a.has(), b.has()})
		done := make(chan error, 1)
		b.link.Cut()
		c.until(2*lease, "b to lose its term", func() bool { return b.has() == 0 })
		go func() { done <- b.Balanced(context.Background()) }()
		c.sleep(0)
		b.stop()
		b.link.Mend()
		<-b.done
		assert.ErrorContains(t, <-done, "has ended")
	})
}

// An observer is told of each partition that is assigned or revoked, with its token and the reason.
func TestAnObserverIsToldOfPartitions(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		var mu sync.Mutex
		var seen []spindle.Event
		observe := spindle.WithObserver(func(e spindle.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Partition != "" {
				seen = append(seen, e)
			}
		})
		a := c.alone(2, observe)
		_, token := a.Has("0")
		c.sleep(2 * lease)
		b := c.start("b", Numbered(2))
		c.until(3*lease, "an even spread", spreadOver(2, a, b))
		a.link.Counts()
		c.end(a)
		counts := a.link.Counts()
		assert.Equal(t, []int{1, 0, 0}, []int{counts["release"], counts["release-partitions"], counts["announce"]}, "everything is released in one commit")
		require.Len(t, seen, 4)
		for i, kind := range []spindle.EventKind{spindle.PartitionAssigned, spindle.PartitionAssigned, spindle.PartitionRevoked, spindle.PartitionRevoked} {
			assert.Equal(t, kind, seen[i].Kind)
			assert.Equal(t, token, seen[i].Token)
		}
		assert.ElementsMatch(t, []string{"0", "1"}, []string{seen[0].Partition, seen[1].Partition})
		assert.ErrorIs(t, seen[2].Err, ErrMoved)
		assert.ErrorIs(t, seen[3].Err, context.Canceled)
	})
}
