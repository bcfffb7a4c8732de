package lock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// The tests in this file let crowds wait for one mutex in virtual time, each waiter in a process of its own, on a model
// of Spanner's locks with round trips of five milliseconds. Random choices stay random, so the tests check bounds.

type crowd struct {
	t       *testing.T
	spanner *memstore.Locking
	lease   time.Duration
	locked  chan *waiter
	all     sync.WaitGroup
	ctx     context.Context

	mu     sync.Mutex
	beats  map[spindle.Token]time.Time // the last heartbeat under each token
	claims []time.Time
}

// waiter is a mutex in a process that can crash.
type waiter struct {
	*Mutex
	table.Store
	crashed atomic.Bool
	crowd   *crowd
}

func (w *waiter) Commit(ctx context.Context, step string, writes []table.Write) error {
	if w.crashed.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return w.Store.Commit(ctx, step, writes)
}

func (w *waiter) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	if step == "claim" {
		w.crowd.mu.Lock()
		w.crowd.claims = append(w.crowd.claims, time.Now())
		w.crowd.mu.Unlock()
	}
	return w.Store.Transact(ctx, step, fn)
}

// inACrowd holds one mutex while n more waiters wait for it. It sends each holder to locked.
func inACrowd(t *testing.T, n int, lease time.Duration, f func(c *crowd, holder *waiter)) {
	fleet.Bubble(t, func(t *testing.T) {
		store := &memstore.Store{}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c := &crowd{t: t, spanner: memstore.NewLocking(store), lease: lease, locked: make(chan *waiter, n+1), ctx: ctx, beats: map[spindle.Token]time.Time{}}
		store.OnCommit = func(step string, at time.Time, _, after map[string]table.Row) {
			if step == "confirm" || step == "heartbeat" {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.beats[spindle.Token(table.TokenAt(after["m"].Token))] = at
			}
		}
		c.join(0)
		holder := c.next(lease)
		for i := range n {
			c.join(i + 1)
		}
		f(c, holder)
		cancel()
		c.all.Wait()
		time.Sleep(time.Hour) // whatever hangs ends with its time-out
	})
}

func (c *crowd) join(process int) {
	w := &waiter{Store: c.spanner, crowd: c}
	w.Mutex = New(nil, "locktable", "m", spindle.WithLease(c.lease), silent, options.Option(func(c *options.Config) { c.Store, c.Process = w, fmt.Sprint("process of a crowd ", process) }))
	c.all.Go(func() {
		if w.Lock(c.ctx) == nil {
			c.locked <- w
			<-c.ctx.Done()
			_ = w.Unlock(context.Background())
		}
	})
}

func (c *crowd) next(limit time.Duration) *waiter {
	c.t.Helper()
	select {
	case w := <-c.locked:
		return w
	case <-time.After(limit):
		require.FailNow(c.t, "nobody has the mutex", "for %v", limit)
		return nil
	}
}

// since returns the time since the last heartbeat under a token.
func (c *crowd) since(token spindle.Token) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.beats[token])
}

// most returns the largest number of claims within d.
func (c *crowd) most(d time.Duration) (most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := 0
	for i, at := range c.claims {
		for at.Sub(c.claims[first]) >= d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func TestAMutexWithACrowdOfWaitersIsHandedOn(t *testing.T) {
	const lease = 10 * time.Second
	many := 2000
	if fleet.Brief() {
		many = 400
	}
	inACrowd(t, many, lease, func(c *crowd, holder *waiter) {
		time.Sleep(time.Second / 2)
		var worst time.Duration
		turns := 0
		for start := time.Now(); time.Since(start) < time.Second; turns++ {
			free := time.Now()
			require.NoError(t, holder.Unlock(context.Background()))
			holder = c.next(lease)
			worst = max(worst, time.Since(free))
		}
		t.Logf("%d turns in a second, the longest time between two %v; at most %d claims within 10ms", turns, worst, c.most(10*time.Millisecond))
		assert.Less(t, worst, lease/20)
		assert.Greater(t, turns, 5)
	})
}

func TestACrowdOfWaitersOutlivesAHolder(t *testing.T) {
	const lease = time.Second
	many := 300
	if fleet.Brief() {
		many = 100
	}
	inACrowd(t, many, lease, func(c *crowd, holder *waiter) {
		var took []time.Duration
		for range 5 {
			time.Sleep(lease)
			token := holder.Token()
			holder.crashed.Store(true)
			holder = c.next(20 * lease)
			took = append(took, c.since(token))
		}
		slices.Sort(took)
		t.Logf("median %v, worst %v", took[len(took)/2], took[len(took)-1])
		assert.GreaterOrEqual(t, took[0], lease, "the best")
		assert.Less(t, took[len(took)/2], lease+3*lease/10, "the median")
		assert.Less(t, took[len(took)-1], 3*lease, "the worst")
	})
}

func TestACrowdOfWaitersDoesNotClaimAtOnce(t *testing.T) {
	const lease = 10 * time.Second
	inACrowd(t, 200, lease, func(c *crowd, holder *waiter) {
		time.Sleep(2 * time.Second)
		c.mu.Lock()
		c.claims = nil
		c.mu.Unlock()
		holder.crashed.Store(true)
		c.next(2 * lease)
		t.Logf("%d claims, at most %d within 10ms", len(c.claims), c.most(10*time.Millisecond))
		assert.Less(t, c.most(10*time.Millisecond), 50, "claims of 200 waiters within 10 ms")
		assert.Positive(t, c.most(10*time.Millisecond))
	})
}

// A waiter knows when a lease runs out, however long it is.
func TestAWaiterGoesOnAsSoonAsALeaseHasRunOut(t *testing.T) {
	type taken struct{ giveBack func(context.Context) error }
	const lease = 5 * time.Minute
	for what, take := range map[string]func(p *process, ctx context.Context) (taken, error){
		"mutex": func(p *process, ctx context.Context) (taken, error) {
			m := p.mutex("m", spindle.WithLease(lease))
			return taken{m.Unlock}, m.Lock(ctx)
		},
		"semaphore": func(p *process, ctx context.Context) (taken, error) {
			permit, err := p.semaphore("s", 1, spindle.WithLease(lease)).Acquire(ctx)
			if err != nil {
				return taken{}, err
			}
			return taken{permit.Release}, nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				dead, waiter := b.process(), b.process()
				held, err := take(dead, b.Context())
				require.NoError(t, err)
				dead.Cut()
				start := time.Now()
				next, err := take(waiter, b.Context())
				require.NoError(t, err)
				assert.InDelta(t, lease.Seconds(), time.Since(start).Seconds(), 2)
				dead.Mend()
				assert.ErrorIs(t, held.giveBack(b.Context()), ErrNotHeld)
				require.NoError(t, next.giveBack(b.Context()))
			})
		})
	}
}
