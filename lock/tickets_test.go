package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// The tests in this file are about the tickets of waiters that die, give up, are slow, or are not what they seem.

// await waits for a lock until ctx ends, and returns the outcome. If it got the lock, it unlocks it at the end.
func (g *fairground) await(ctx context.Context, m locking) <-chan error {
	locked := make(chan error, 1)
	g.all.Go(func() {
		err := m.Lock(ctx)
		locked <- err
		<-g.ctx.Done()
		_ = m.Unlock(context.Background()) // unless the test did
	})
	return locked
}

// stays puts a waiter into the queue, which then has n tickets.
func (g *fairground) stays(m locking, n int) <-chan error {
	locked := g.await(g.ctx, m)
	time.Sleep(500 * time.Millisecond)
	require.Len(g, g.tickets(), n)
	return locked
}

func (g *fairground) delete(key string) {
	require.NoError(g, g.rows.Commit(context.Background(), "operator", []table.Write{{Kind: table.Delete, Name: key}}))
}

// A waiter costs the less the longer the lock is held: 20 polls a lease at the head of the queue, ten behind it, and the
// renewals of its ticket.
func TestAWaiterForALongHeldLockPollsRarely(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		const lease = 4 * time.Second
		holder := b.process().mutex("m", spindle.WithLease(lease))
		require.NoError(t, holder.Lock(b.Context()))
		var waiters []*process
		var all sync.WaitGroup
		for range 5 {
			p := b.process()
			waiters = append(waiters, p)
			m := p.mutex("m", spindle.WithLease(lease))
			all.Go(func() {
				assert.NoError(t, m.Lock(b.Context()))
				assert.NoError(t, m.Unlock(b.Context()))
			})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * lease)
		before := make([]int, len(waiters))
		for i, p := range waiters {
			before[i] = len(p.sent())
		}
		time.Sleep(20 * lease)
		for i, p := range waiters {
			each, most := float64(len(p.sent())-before[i])/20, 12.0
			if i == 0 {
				most = 23 // a pause is up to a tenth shorter than its bound
			}
			t.Logf("place %d: %.1f requests a lease", i, each)
			assert.LessOrEqual(t, each, most, "place %d", i)
			assert.Greater(t, each, 9.0, "place %d", i)
		}
		require.NoError(t, holder.Unlock(b.Context()))
		all.Wait()
	})
}

// A waiter that dies at the head of the queue delays the next one by its grace, once. The grace is short after a short hold,
// and at most a tenth of the lease and three round trips.
func TestAWaiterThatDiesAtTheHeadCostsItsGrace(t *testing.T) {
	for hold, costs := range map[time.Duration]time.Duration{500 * time.Millisecond: 100 * time.Millisecond, time.Minute: time.Second} {
		t.Run(hold.String(), func(t *testing.T) { testADeadHead(t, hold, costs) })
	}
}

func testADeadHead(t *testing.T, hold, costs time.Duration) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		link := &memstore.Link{Store: g.spanner}
		dead, cancel := context.WithCancel(g.ctx)
		g.await(dead, New(nil, "locktable", "m", silent, options.Option(func(c *options.Config) { c.Store, c.Process = link, "dead" })))
		time.Sleep(hold)
		next := g.stays(g.mutex("next", "m"), 2)
		link.Cut()
		free := time.Now()
		require.NoError(t, holder.Unlock(g.ctx))
		require.NoError(t, <-next)
		t.Logf("taken after %v", time.Since(free))
		assert.Less(t, time.Since(free), costs+150*time.Millisecond)
		assert.Greater(t, time.Since(free), costs, "it is left to the first")
		assert.Empty(t, g.tickets(), "both are gone")
		cancel()
	})
}

func TestAWaiterWhoseTicketIsGonePutsItAgainThreeTimes(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		next := g.stays(g.mutex("next", "m"), 1)
		for range 2 { // the new place is kept as often
			first := g.tickets()[0]
			for range 3 {
				g.delete(first)
				time.Sleep(500 * time.Millisecond)
				assert.Equal(t, []string{first}, g.tickets(), "its place is kept")
			}
			g.delete(first)
			time.Sleep(500 * time.Millisecond)
			again := g.tickets()
			require.Len(t, again, 1)
			assert.NotEqual(t, first, again[0], "who can queue and not claim goes to the end")
		}
		require.NoError(t, holder.Unlock(g.ctx))
		require.NoError(t, <-next)
	})
}

// A goroutine that gives up hands its place on, with the count of how often its ticket was put again. Otherwise, a process that
// can queue but can't claim would delay the waiters behind it for as long as its goroutines wait only briefly.
func TestAPlaceThatIsHandedOnIsPutAgainThreeTimesInAll(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		waits := func() (giveUp func()) {
			ctx, cancel := context.WithCancel(g.ctx)
			locked := g.await(ctx, g.mutex("next", "m"))
			time.Sleep(300 * time.Millisecond)
			return func() {
				cancel()
				require.ErrorIs(t, <-locked, context.Canceled)
				time.Sleep(100 * time.Millisecond)
			}
		}
		giveUp := waits()
		first := g.tickets()
		require.Len(t, first, 1)
		for range 3 {
			next := waits()
			giveUp()
			giveUp = next
			g.delete(first[0])
			time.Sleep(500 * time.Millisecond)
			require.Equal(t, first, g.tickets(), "its place is kept")
		}
		next := waits()
		giveUp()
		g.delete(first[0])
		time.Sleep(500 * time.Millisecond)
		again := g.tickets()
		require.Len(t, again, 1)
		assert.NotEqual(t, first, again, "who can queue and not claim goes to the end")
		next()
		require.NoError(t, holder.Unlock(g.ctx))
	})
}

// A write of a ticket that fails is repeated after the next poll. It neither costs the waiter its place, as a ticket does
// that others have deleted several times, nor counts as a renewal. Two times that are each shorter than the waiter's
// patience do not end the wait.
func TestAWriteOfATicketThatFailsIsRepeated(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		m, link := g.linked("first", "m")
		link.Refuse(fleet.Refusing("queue", refused(codes.PermissionDenied)))
		first := g.await(g.ctx, m)
		time.Sleep(100 * time.Millisecond)
		next := g.stays(g.mutex("next", "m"), 1)
		time.Sleep(6 * time.Second)
		link.Refuse(nil)
		time.Sleep(2 * time.Second)
		require.Len(t, g.tickets(), 2)

		time.Sleep(7 * time.Second) // a ticket is renewed after ten seconds
		link.Refuse(fleet.Refusing("queue", refused(codes.PermissionDenied)))
		time.Sleep(3 * time.Second)
		link.Refuse(nil)
		time.Sleep(2 * time.Second)
		rows, at, err := g.rows.Read(g.ctx, "test", table.Present, table.Keys{All: true, Prefix: "!wait/"})
		require.NoError(t, err)
		for _, ticket := range table.Tickets("m", rows) {
			assert.Less(t, at.Sub(ticket.Beat), 11*time.Second)
		}

		require.NoError(t, holder.Unlock(g.ctx))
		select {
		case err := <-first:
			require.NoError(t, err)
		case <-next:
			t.Error("the first has lost its place")
		}
	})
}

// A commit that is applied again brings a ticket back. Its process deletes the ticket when it queues again, and other
// processes pass the ticket.
func TestTicketsThatComeBackCostLittle(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		g.again = rand.New(rand.NewPCG(1, 2))
		for i := range 6 {
			p := fmt.Sprint("process ", i)
			g.loop(p, g.mutex(p, "m"), 100*time.Millisecond)
		}
		least, most, _ := g.run(40 * time.Second)
		assert.Greater(t, least, 20)
		assert.Less(t, most-least, most/5)
		g.stop()
		g.all.Wait()
		time.Sleep(10 * time.Second) // whatever is applied again is there
		for _, key := range g.tickets() {
			g.delete(key)
		}
	})
}

// At whatever time ctx ends, no ticket and no lock is left behind.
func TestAWaitThatEndsAtAnyInstantLeavesNothing(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		for after := time.Millisecond; after < 80*time.Millisecond; after += time.Millisecond {
			for _, held := range []bool{true, false} {
				holder, waiter := g.mutex("holder", "m"), g.mutex("waiter", "m")
				require.NoError(t, holder.Lock(g.ctx))
				ctx, cancel := context.WithTimeout(g.ctx, after)
				locked := g.await(ctx, waiter)
				if !held {
					time.Sleep(min(after, 20*time.Millisecond))
					require.NoError(t, holder.Unlock(g.ctx))
				}
				if err := <-locked; err == nil {
					require.NoError(t, waiter.Unlock(g.ctx))
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				cancel()
				time.Sleep(500 * time.Millisecond)
				assert.Empty(t, g.tickets(), "after %v", after)
				if held {
					require.NoError(t, holder.Unlock(g.ctx))
				}
				ok, err := holder.TryLock(g.ctx)
				require.NoError(t, err)
				require.True(t, ok, "after %v", after)
				require.NoError(t, holder.Unlock(g.ctx))
			}
		}
	})
}

// off is a clock that is wrong by days and is set now and then.
type off struct {
	elect.SystemClock
	by func() time.Duration
}

func (c off) Now() elect.Instant {
	i := c.SystemClock.Now()
	i.Wall += int64(c.by())
	return i
}

func TestTheClockOfAWaiterDoesNotMatter(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		for i, by := range []time.Duration{0, 0, 0, 26 * time.Hour, -26 * time.Hour} {
			p := fmt.Sprint("process ", i)
			opts := append(g.options(p, 0), options.Option(func(c *options.Config) { c.Clock = off{by: func() time.Duration { return by }} }))
			for range 2 { // who goes to the end of the queue goes there by Spanner's clock
				g.loop(p, New(nil, "locktable", "m", opts...), 50*time.Millisecond)
			}
		}
		least, most, _ := g.run(20 * time.Second)
		assert.LessOrEqual(t, most-least, 2)
	})
}

// An elector takes a lock when it finds it free, even if other processes are waiting. The waiters continue after it.
func TestAnElectorAndWaitersLiveOnOneLock(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		for i := range 3 {
			p := fmt.Sprint("process ", i)
			g.loop(p, g.mutex(p, "m"), 500*time.Millisecond)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		led := make(chan struct{}, 1)
		// An elector does not queue. It polls three times a lease, and the lock is free for a seventeenth of the time, so its
		// chance to have led after ten minutes is certain with this lease, but only 98 percent with one of 30 s.
		elector := spindle.New(nil, "locktable", "m", options.Join(g.options("elector", 0)...), spindle.WithLease(3*time.Second), spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			led <- struct{}{}
			<-ctx.Done()
		}))
		require.NoError(t, elector.Run(ctx, done))
		select {
		case <-led:
		case <-time.After(10 * time.Minute):
			t.Error("it never finds the lock free")
		}
		cancel()
		require.NoError(t, <-done)
		g.mu.Lock()
		clear(g.turns)
		g.mu.Unlock()
		least, most, _ := g.run(20 * time.Second)
		assert.Len(t, g.turns, 3)
		assert.LessOrEqual(t, most-least, 2)
	})
}

// All callers that wait for one key leave as soon as it is recorded, wherever they are in the queue and whatever
// process holds the lock.
func TestThoseWhoWaitForAKeyLeaveAsSoonAsItIsDone(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		var all sync.WaitGroup
		var runs atomic.Int64
		start := time.Now()
		for i := range 50 {
			all.Go(func() {
				o := NewOnce(nil, "locktable", "nightly", g.options(fmt.Sprint("process ", i), 0)...)
				ran, err := o.Do(g.ctx, KeyOf("1"), func(ctx context.Context, r Run) error {
					runs.Add(1)
					time.Sleep(5 * time.Second)
					// This is a commit of the work itself, which then continues.
					err := g.spanner.Commit(ctx, "work", table.Record("nightly", table.Token(r.Token()), table.Due{Key: "1"}, "p"))
					time.Sleep(time.Minute)
					return err
				})
				assert.NoError(t, err)
				if !ran {
					assert.Less(t, time.Since(start), 7*time.Second, "the work went on for a minute")
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 1, runs.Load())
	})
}

// A smaller key is not passed by a larger key that has waited for longer, because it would no longer be run.
func TestASmallerKeyIsNotPassedByALargerOne(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "nightly")
		require.NoError(t, holder.Lock(g.ctx))
		var all sync.WaitGroup
		for _, key := range []string{"3", "2", "1"} {
			all.Go(func() {
				ran, err := NewOnce(nil, "locktable", "nightly", g.options("process "+key, 0)...).Do(g.ctx, KeyOf(key), func(context.Context, Run) error {
					time.Sleep(100 * time.Millisecond)
					return nil
				})
				assert.NoError(t, err, key)
				assert.True(t, ran, key)
			})
			time.Sleep(500 * time.Millisecond)
		}
		require.NoError(t, holder.Unlock(g.ctx))
		all.Wait()
	})
}

// While processes give a semaphore different sizes, the waiters count too. No process takes a slot that one of them
// does not know.
func TestAWaiterOfASmallerSizeIsAccepted(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		small := NewSemaphore(nil, "locktable", "s", 1, g.options("small", 0)...)
		large := NewSemaphore(nil, "locktable", "s", 3, g.options("large", 0)...)
		first, err := small.Acquire(g.ctx)
		require.NoError(t, err)
		other := NewSemaphore(nil, "locktable", "s", 1, g.options("other", 0)...)
		waits := make(chan *Permit, 1)
		g.all.Go(func() {
			p, err := other.Acquire(g.ctx)
			assert.NoError(t, err)
			waits <- p
		})
		time.Sleep(time.Second)
		require.NoError(t, first.Release(g.ctx))
		slot, ok, err := large.TryAcquire(g.ctx)
		require.NoError(t, err)
		if !assert.False(t, ok, "the only slot that all know is another's next") {
			require.NoError(t, slot.Release(g.ctx))
		}
		for _, other := range []string{"s/slot/0001", "s/slot/0002"} {
			assert.NotContains(t, g.rows.Rows(), other, "nor is another taken, to be given back")
		}
		require.NoError(t, (<-waits).Release(g.ctx))
	})
}

// A ticket that was made by hand, or a queue of thousands, blocks no process.
func TestNonsenseInTheQueueStopsNobody(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		var writes []table.Write
		for _, key := range []string{"!wait/m/", "!wait/m/x", "!wait/m/0000000000000001/x", "!wait/m/9999999999999999/y", "!wait/m/0000000000000002/a/b"} {
			writes = append(writes, table.Write{Kind: table.Put, Name: key, Set: []table.Cell{{Column: table.ColWriter, Value: "nonsense"}}})
		}
		require.NoError(t, g.rows.Commit(g.ctx, "operator", writes))
		g.dead(3000, "m")
		start := time.Now()
		m := g.mutex("m", "m")
		for range 3 {
			require.NoError(t, m.Lock(g.ctx))
			require.NoError(t, m.Unlock(g.ctx))
		}
		assert.Less(t, time.Since(start), 30*time.Second)
		for _, key := range g.tickets() {
			g.delete(key)
		}
	})
}

// A waiter whose tickets can't be written waits like one without any: it gets the lock when no other process wants it.
func TestAWaiterThatCanNotQueueGetsTheLockInTheEnd(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		store := &memstore.Link{Store: g.spanner}
		store.Refuse(func(step string) error {
			if step == "queue" {
				return errors.New("refused")
			}
			return nil
		})
		locked := g.await(g.ctx, New(nil, "locktable", "m", silent, options.Option(func(c *options.Config) { c.Store, c.Process = store, "refused" })))
		time.Sleep(time.Second)
		require.NoError(t, holder.Unlock(g.ctx))
		free := time.Now()
		require.NoError(t, <-locked)
		assert.Less(t, time.Since(free), time.Second)
	})
}

// The clock of a machine is set a day ahead while it holds the lock. Its process does not then wait for a day.
func TestASetClockMovesNobodyInTheQueue(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		var ahead atomic.Int64
		opts := append(g.options("set", 0), spindle.WithLease(time.Hour), options.Option(func(c *options.Config) {
			c.Clock = off{by: func() time.Duration { return time.Duration(ahead.Load()) }}
		}))
		one, other := New(nil, "locktable", "m", opts...), New(nil, "locktable", "m", opts...)
		require.NoError(t, one.Lock(g.ctx))
		next := g.await(g.ctx, other)
		time.Sleep(500 * time.Millisecond)
		ahead.Store(int64(30 * time.Minute))
		require.NoError(t, one.Unlock(g.ctx))
		time.Sleep(2 * time.Millisecond)
		for _, key := range g.tickets() {
			var at table.Token
			_, err := fmt.Sscanf(key, "!wait/m/%d/", &at)
			require.NoError(t, err)
			assert.WithinDuration(t, time.Now(), at.Time(), time.Second)
		}
		require.NoError(t, <-next)
	})
}

// A set that waits behind another for one lock can't continue, so it does not keep a free lock from other waiters.
func TestALockIsNotIdleForASetThatIsNotFirstEverywhere(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		a, b := g.mutex("holder", "a"), g.mutex("holder", "b")
		require.NoError(t, a.Lock(g.ctx))
		require.NoError(t, b.Lock(g.ctx))
		first := g.stays(g.mutex("first", "a"), 1)
		set := g.stays(All(nil, "locktable", []string{"a", "b"}, g.options("set", 0)...), 3)
		next := g.stays(g.mutex("next", "b"), 4)
		require.NoError(t, b.Unlock(g.ctx))
		free := time.Now()
		require.NoError(t, <-next)
		assert.Less(t, time.Since(free), 250*time.Millisecond)
		require.NoError(t, a.Unlock(g.ctx))
		require.NoError(t, <-first)
		g.stop()
		require.Error(t, <-set)
	})
}

// The waiters before a set for a free lock may have died. The set passes them, and no waiter passes the set for the
// lock that is held.
func TestASetThatPassesTheDeadHasItsTurn(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "a")
		require.NoError(t, holder.Lock(g.ctx))
		g.dead(1, "b")
		ctx, cancel := context.WithTimeout(g.ctx, 30*time.Second)
		defer cancel()
		time.Sleep(time.Second)
		set := g.await(ctx, All(nil, "locktable", []string{"a", "b"}, g.options("set", 300*time.Millisecond)...))
		time.Sleep(2 * time.Second)
		for i := range 5 {
			p := fmt.Sprint("process ", i)
			g.loop(p, g.mutex(p, "a"), time.Second)
		}
		time.Sleep(time.Second)
		require.NoError(t, holder.Unlock(g.ctx))
		assert.NoError(t, <-set)
		g.mu.Lock()
		defer g.mu.Unlock()
		assert.Empty(t, g.turns, "they came after the set")
	})
}

// One lock of a set is wanted by many waiters, and a waiter in the queue of the other lock has died.
func TestADeadWaiterForOneLockDoesNotKeepASetFromAnother(t *testing.T) {
	for _, dead := range []int{1, 40} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			takingTurns(t, func(g *fairground) {
				for i := range 5 {
					p := fmt.Sprint("process ", i)
					g.loop(p, g.mutex(p, "a"), 200*time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				g.dead(dead, "b")
				ctx, cancel := context.WithTimeout(g.ctx, time.Minute)
				defer cancel()
				set := All(nil, "locktable", []string{"a", "b"}, g.options("set", 0)...)
				start := time.Now()
				if assert.NoError(t, set.Lock(ctx)) {
					t.Logf("after %v", time.Since(start))
					require.NoError(t, set.Unlock(g.ctx))
				}
				for _, key := range g.tickets() {
					g.delete(key)
				}
			})
		})
	}
}

// While a set waits for a holder, its tickets are not deleted.
func TestASetKeepsItsPlaceWhileItWaits(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "b")
		require.NoError(t, holder.Lock(g.ctx))
		first := g.stays(g.mutex("first", "b"), 1)
		locked := g.stays(All(nil, "locktable", []string{"a", "b"}, g.options("set", 0)...), 3)
		before := g.tickets()
		time.Sleep(10 * time.Minute)
		m := g.mutex("other", "a")
		require.NoError(t, m.Lock(g.ctx))
		require.NoError(t, m.Unlock(g.ctx))
		assert.Equal(t, before, g.tickets())
		require.NoError(t, holder.Unlock(g.ctx))
		require.NoError(t, <-first)
		g.stop()
		require.Error(t, <-locked)
	})
}

// A process that holds a slot and no longer waits for one has no ticket.
func TestAWaitForASlotThatEndsLeavesNoTicketWhileItsProcessHoldsAnother(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		s := NewSemaphore(nil, "locktable", "s", 1, g.options("process", 0)...)
		p, err := s.Acquire(g.ctx)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(g.ctx, 2*time.Second)
		defer cancel()
		_, err = s.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		assert.Empty(t, g.tickets(), "nobody waits")
		require.NoError(t, p.Release(g.ctx))
	})
}

// The lock's row was pruned, so nothing shows since when the lock has been free.
func TestTryLockTakesALockWithoutARowThoughAWaiterDiedLongAgo(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		g.dead(1, "m")
		m := g.mutex("m", "m")
		var ok bool
		for range 10 {
			time.Sleep(time.Second)
			var err error
			if ok, err = m.TryLock(g.ctx); ok || err != nil {
				require.NoError(t, err)
				break
			}
		}
		if assert.True(t, ok) {
			require.NoError(t, m.Unlock(g.ctx))
		}
		for _, key := range g.tickets() {
			g.delete(key)
		}
	})
}

// A set claims only once it is first in each of its queues: a waiter that is ahead in any one of them has its time.
func TestASetHeedsEachOfItsQueues(t *testing.T) {
	for _, behind := range []string{"a", "b", "c"} {
		takingTurns(t, func(g *fairground) {
			holder := g.mutex("holder", behind)
			require.NoError(t, holder.Lock(g.ctx))
			g.dead(1, behind)
			time.Sleep(time.Second)
			set := g.stays(All(nil, "locktable", []string{"a", "b", "c"}, g.options("set", 0)...), 4)
			free := time.Now()
			require.NoError(t, holder.Unlock(g.ctx))
			require.NoError(t, <-set)
			assert.Greater(t, time.Since(free), 200*time.Millisecond, "%s is left to the first", behind)
			assert.Less(t, time.Since(free), time.Second, behind)
			g.stop()
		})
	}
}

// A try does not wait, so it leaves nothing that others would wait for: whatever it finds, later turns of its process put no ticket
// into the queue.
func TestATryLeavesNoTicket(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		own, other, far := g.mutex("own", "m"), g.mutex("own", "m"), g.mutex("far", "m")
		tries := func(m *Mutex, want bool) {
			ok, err := m.TryLock(g.ctx)
			require.NoError(t, err)
			assert.Equal(t, want, ok)
			if ok {
				require.NoError(t, m.Unlock(g.ctx))
			}
		}
		for range 3 {
			require.NoError(t, own.Lock(g.ctx))
			tries(other, false) // its process holds it
			tries(far, false)   // another process holds it
			ended, cancel := context.WithCancel(g.ctx)
			cancel()
			_, err := other.TryLock(ended)
			require.Error(t, err)
			require.NoError(t, own.Unlock(g.ctx))
			assert.Empty(t, g.tickets())
			tries(other, true)
			tries(far, true)
			assert.Empty(t, g.tickets())
		}
	})
}
