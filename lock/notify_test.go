package lock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/spindletest"
)

// The tests in this file let processes take turns that tell each other when a lock is free, with a lease of four seconds.

const notifiedLease = 4 * time.Second

// counted is a connection to the table that counts requests.
type counted struct {
	far
	requests *atomic.Int64
}

func (c counted) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	c.requests.Add(1)
	return c.far.Read(ctx, step, bound, keys)
}

func (c counted) Commit(ctx context.Context, step string, writes []table.Write) error {
	c.requests.Add(1)
	return c.far.Commit(ctx, step, writes)
}

// notified is a fairground whose processes have notifications.
type notified struct {
	*fairground
	net      *spindletest.Network
	requests atomic.Int64
	inside   atomic.Int32
}

func (n *notified) options(process string) (opts []Option, silence func()) {
	told, silence := n.net.Process()
	return []Option{silent, told, spindleLease(notifiedLease), options.Option(func(c *options.Config) {
		c.Store, c.Process = counted{far{n.spanner, n.fairground, 0}, &n.requests}, n.Name()+" "+process
	})}, silence
}

func spindleLease(d time.Duration) Option {
	return options.Option(func(c *options.Config) { c.SetLease(d) })
}

func withNotifications(t *testing.T, f func(n *notified)) {
	takingTurns(t, func(g *fairground) { f(&notified{fairground: g, net: spindletest.NewNetwork()}) })
}

// turns lets processes take turns of hold, and returns how many there were.
func (n *notified) turns(processes int, hold, d time.Duration) (turns int) {
	for i := range processes {
		p := fmt.Sprint("process ", i)
		opts, _ := n.options(p)
		n.loop(p, n.alone(New(nil, "locktable", "m", opts...)), hold)
	}
	time.Sleep(notifiedLease)
	n.mu.Lock()
	before := len(n.idle)
	n.mu.Unlock()
	n.requests.Store(0)
	n.run(d)
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.idle) - before
}

// exclusive is a Mutex that fails the test if two hold it.
type exclusive struct {
	*Mutex
	n *notified
}

func (n *notified) alone(m *Mutex) locking { return &exclusive{m, n} }

func (e *exclusive) Lock(ctx context.Context) error {
	err := e.Mutex.Lock(ctx)
	if err == nil && e.n.inside.Add(1) > 1 {
		e.n.Error("two hold the lock")
	}
	return err
}

func (e *exclusive) Unlock(ctx context.Context) error {
	e.n.inside.Add(-1)
	return e.Mutex.Unlock(ctx)
}

func TestNotifiedWaitersPollSeldomAndClaimAtOnce(t *testing.T) {
	for _, c := range []struct {
		processes     int
		hold, d       time.Duration
		aTurn, aLease float64       // requests a turn, and of each process in a lease
		idle          time.Duration // the median; of a hundred, the next in line may be told by another waiter, which takes a poll more
	}{{10, 20 * time.Millisecond, 10 * time.Second, 6.5, 99, 25 * time.Millisecond}, {10, 200 * time.Millisecond, 15 * time.Second, 7.5, 99, 25 * time.Millisecond},
		{6, 12 * time.Second, 2 * time.Minute, 99, 2.6, 25 * time.Millisecond}, {100, 2 * time.Second, 40 * time.Second, 199, 2.4, 26 * time.Millisecond}} {
		t.Run(fmt.Sprint(c.processes, " of ", c.hold), func(t *testing.T) {
			withNotifications(t, func(n *notified) {
				turns := n.turns(c.processes, c.hold, c.d)
				requests := float64(n.requests.Load())
				aLease := requests / c.d.Seconds() * notifiedLease.Seconds() / float64(c.processes)
				t.Logf("%.1f requests a turn, %.2f a lease of each process; %d messages a turn", requests/float64(turns), aLease, n.net.Sent()/turns)
				assert.Less(t, requests/float64(turns), c.aTurn)
				assert.Less(t, aLease, c.aLease)
				slices.Sort(n.idle)
				assert.LessOrEqual(t, n.idle[len(n.idle)/2], c.idle, "a commit, a message, a poll and a commit")
				assert.LessOrEqual(t, n.idle[len(n.idle)*95/100], 31*time.Millisecond)
			})
		})
	}
}

// Whatever happens to messages, two never hold the lock, and nobody waits longer than without them by more than a third of a
// lease.
func TestNobodyWaitsMuchLongerWhateverHappensToNotifications(t *testing.T) {
	const longest = notifiedLease/20 + notifiedLease/3 + 100*time.Millisecond
	for name, fault := range map[string]func(n *notified){
		"some are lost":     func(n *notified) { n.net.Lose(0.1) },
		"half are lost":     func(n *notified) { n.net.Lose(0.5) },
		"none arrives":      func(n *notified) { n.net.Lose(1) },
		"they take long":    func(n *notified) { n.net.Delay(60 * time.Millisecond) },
		"they take longest": func(n *notified) { n.net.Delay(time.Second) },
		"from now on none": func(n *notified) {
			time.AfterFunc(7*time.Second, func() { n.net.Lose(1) })
			time.AfterFunc(27*time.Second, func() { n.net.Lose(0) })
		},
	} {
		for _, hold := range []time.Duration{20 * time.Millisecond, 6 * time.Second} {
			t.Run(fmt.Sprint(name, " ", hold), func(t *testing.T) {
				withNotifications(t, func(n *notified) {
					fault(n)
					d := min(time.Minute, 250*hold)
					turns := n.turns(6, hold, d)
					assert.Greater(t, float64(turns), 0.9*float64(d/(hold+longest/8)))
					assert.LessOrEqual(t, slices.Max(n.idle), longest)
				})
			})
		}
	}
}

// A holder that dies, and waiters in line that have died, cost no more than without notifications and a third of a lease.
func TestTheDeadDelayNobodyMuchWithNotifications(t *testing.T) {
	for _, c := range []struct{ dead int }{{0}, {1}, {3}} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprint(c.dead, " in line are dead, the holder dies ", dies), func(t *testing.T) {
				withNotifications(t, func(n *notified) {
					dead := make(chan struct{})
					opts, silence := n.options("holder")
					holder := New(nil, "locktable", "m", append(opts, options.Option(func(c *options.Config) { c.Mute = dead }))...)
					assert.NoError(t, holder.Lock(n.ctx))
					var silences []func()
					for i := range c.dead {
						p := fmt.Sprint("dead ", i)
						opts, silence := n.options(p)
						ctx, cut := context.WithCancel(n.ctx)
						stuck := options.Option(func(c *options.Config) { c.Store = stuck(c.Store, ctx) })
						silences = append(silences, silence, cut)
						n.all.Go(func() { _ = New(nil, "locktable", "m", append(opts, stuck)...).Lock(n.ctx) })
						time.Sleep(50 * time.Millisecond)
					}
					for i := range 4 {
						p := fmt.Sprint("process ", i)
						opts, _ := n.options(p)
						n.loop(p, n.alone(New(nil, "locktable", "m", opts...)), time.Second)
						time.Sleep(50 * time.Millisecond)
					}
					time.Sleep(notifiedLease)
					for _, die := range silences {
						die()
					}
					time.Sleep(notifiedLease)
					began := time.Now()
					longest := notifiedLease/20 + notifiedLease/3 + 100*time.Millisecond
					if dies {
						silence()
						close(dead)
						longest += notifiedLease
					} else {
						assert.NoError(t, holder.Unlock(n.ctx))
					}
					time.Sleep(2 * notifiedLease)
					first := n.taken()
					assert.LessOrEqual(t, first.Sub(began), longest)
					n.stop()
					if dies {
						_ = holder.Unlock(context.Background())
					}
				})
			})
		}
	}
}

// stuck is a connection of a process that is stopped once stopped ends: its requests are not sent.
func stuck(store table.Store, stopped context.Context) table.Store {
	return table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
		if stopped.Err() != nil {
			<-ctx.Done()
			return ctx.Err()
		}
		return call(ctx, store)
	})
}

// Sets, semaphores and Onces: what turns cost and how long locks are idle, with and without notifications.
func TestNotificationsHelpSetsAndSemaphores(t *testing.T) {
	kinds := map[string]struct {
		make  func(opts []Option, i int) locking
		ratio float64 // of the requests, at most
	}{
		"set": {func(opts []Option, i int) locking {
			return All(nil, "locktable", []string{"m", fmt.Sprint("other ", i%2)}, opts...)
		}, 1.1},
		"semaphore": {func(opts []Option, _ int) locking {
			return &slotLock{NewSemaphore(nil, "locktable", "s", 2, opts...), nil}
		}, 0.5},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			var requests [2]float64
			for on := range 2 {
				withNotifications(t, func(n *notified) {
					if on == 0 {
						n.net.Lose(1)
					}
					for i := range 6 {
						p := fmt.Sprint("process ", i)
						opts, _ := n.options(p)
						n.loop(p, kind.make(opts, i), 2*time.Second)
					}
					time.Sleep(notifiedLease)
					n.requests.Store(0)
					n.run(20 * time.Second)
					requests[on] = float64(n.requests.Load())
				})
			}
			assert.LessOrEqual(t, requests[1], kind.ratio*requests[0])
		})
	}
}

// A holder whose heartbeats are not acknowledged may still answer messages. Its waiters look at the table themselves before its
// lease ends.
func TestWaitersPollWhenTheirHolderMayLoseTheLock(t *testing.T) {
	withNotifications(t, func(n *notified) {
		mute := make(chan struct{})
		opts, _ := n.options("holder")
		holder := New(nil, "locktable", "m", append(opts, options.Option(func(c *options.Config) { c.Mute = mute }))...)
		assert.NoError(t, holder.Lock(n.ctx))
		opts, _ = n.options("waiter")
		n.loop("waiter", n.alone(New(nil, "locktable", "m", opts...)), time.Second)
		polls := func(d time.Duration) int64 {
			n.requests.Store(0)
			time.Sleep(d)
			return n.requests.Load()
		}
		time.Sleep(4 * notifiedLease)
		assert.LessOrEqual(t, polls(5*notifiedLease), int64(5*(3+2)), "heartbeats, and a poll and a ticket")
		for holder.now.Load().remaining() < notifiedLease*9/10 {
			time.Sleep(time.Millisecond)
		}
		close(mute)
		time.Sleep(notifiedLease * 65 / 100)
		assert.GreaterOrEqual(t, polls(notifiedLease/5), int64(3))
		n.stop()
		_ = holder.Unlock(context.Background())
	})
}

// However a hold ends, the holder notifies its waiters at once, because they may rest for as long as the holder answers. A hold ends when a
// heartbeat finds that an operator has broken the lock, when the lease expires, or when Unlock releases the lock, leaves it to expire, or gives
// up on a heartbeat that hangs.
func TestAHolderThatHasLostItsLockTellsItsWaiters(t *testing.T) {
	unlock := func(_ *notified, holder *Mutex, _ func()) { _ = holder.Unlock(context.Background()) }
	for name, c := range map[string]struct {
		slow string // a step that takes ten minutes, whatever becomes of its ctx
		end  func(n *notified, holder *Mutex, mute func())
	}{
		"unlocked":     {"", unlock},
		"not answered": {"release", unlock},
		"heartbeat hangs": {"heartbeat", func(_ *notified, holder *Mutex, _ func()) {
			time.Sleep(notifiedLease / 2)
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			assert.ErrorContains(t, holder.Unlock(ctx), "left to expire")
		}},
		"broken": {"", func(n *notified, holder *Mutex, _ func()) {
			lost := holder.Lost()
			assert.NoError(t, table.Table{Store: n.spanner}.Break(n.ctx, table.Token(holder.Token()), "m"))
			<-lost
		}},
		"expired": {"", func(_ *notified, holder *Mutex, mute func()) { lost := holder.Lost(); mute(); <-lost }},
	} {
		withNotifications(t, func(n *notified) {
			mute, link := make(chan struct{}), &memstore.Link{}
			opts, _ := n.options("holder")
			holder := New(nil, "locktable", "m", append(opts, options.Option(func(o *options.Config) {
				link.Store = o.Store
				o.Mute, o.Store = mute, link
			}))...)
			assert.NoError(t, holder.Lock(n.ctx))
			opts, silence := n.options("waiter")
			waiter := New(nil, "locktable", "m", opts...)
			ctx, end := context.WithCancel(n.ctx)
			ended := make(chan error)
			go func() { ended <- waiter.Lock(ctx) }()
			time.Sleep(5 * notifiedLease)
			silence() // so that the holder does not hear that the waiter has gone
			end()
			assert.Error(t, <-ended)
			synctest.Wait()
			before := n.net.Sent()
			link.Sicken(c.slow, memstore.Slow, 10*time.Minute)
			c.end(n, holder, func() { close(mute) })
			synctest.Wait()
			assert.Equal(t, before+1, n.net.Sent(), name)
			n.stop()
			assert.Error(t, holder.Unlock(context.Background()))
		})
	}
}

// All who wait for a key learn at once that it is done.
func TestAllWhoWaitForAKeyLearnAtOnceThatItIsDone(t *testing.T) {
	withNotifications(t, func(n *notified) {
		var late atomic.Int64
		var done atomic.Int64 // when, in nanoseconds
		for i := range 30 {
			p := fmt.Sprint("process ", i)
			opts, _ := n.options(p)
			n.all.Go(func() {
				ran, err := NewOnce(nil, "locktable", "o", opts...).Do(n.ctx, KeyOf("key"), func(ctx context.Context, _ Run) error {
					time.Sleep(3 * notifiedLease)
					done.Store(time.Now().UnixNano())
					return nil
				})
				assert.NoError(t, err)
				if !ran {
					late.Store(max(late.Load(), time.Now().UnixNano()-done.Load()))
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		n.all.Wait()
		assert.Less(t, time.Duration(late.Load()), 40*time.Millisecond)
	})
}

// Slots that become free at the same time are handed out one after the other at once: who has claimed one tells the next.
func TestSlotsThatAreFreedTogetherAreHandedOutAtOnce(t *testing.T) {
	const slots = 4
	withNotifications(t, func(n *notified) {
		semaphore := func(process string, i int) *Semaphore {
			opts, _ := n.options(fmt.Sprint(process, i))
			return NewSemaphore(nil, "locktable", "s", slots, opts...)
		}
		var held []*Permit
		for i := range slots {
			p, err := semaphore("holder", i).Acquire(n.ctx)
			assert.NoError(t, err)
			held = append(held, p)
		}
		var all sync.WaitGroup
		var freed time.Time
		for i := range slots {
			all.Go(func() {
				p, err := semaphore("waiter", i).Acquire(n.ctx)
				assert.NoError(t, err)
				assert.Less(t, time.Since(freed), 200*time.Millisecond)
				time.Sleep(notifiedLease)
				assert.NoError(t, p.Release(n.ctx))
			})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * notifiedLease)
		freed = time.Now()
		for _, p := range held {
			all.Go(func() { assert.NoError(t, p.Release(n.ctx)) })
		}
		all.Wait()
	})
}
