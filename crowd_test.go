package spindle

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

	"github.com/spindle-lock/spindle/internal/memtable"
	"github.com/spindle-lock/spindle/internal/table"
)

// The tests of this file run crowds in virtual time on a model of Spanner's locks, at five milliseconds
// for each round trip. Chance is left in, so they state bounds.

// crowd is candidates for one lock, all with the same lease.
type crowd struct {
	*bed
	spanner  *memtable.Locking
	lease    time.Duration
	machines []*machine
	elected  chan *machine

	mu    sync.Mutex
	beats map[time.Time]time.Time // the last heartbeat under each token
}

func (b *bed) crowd(n int, lease time.Duration) *crowd {
	c := &crowd{bed: b, spanner: memtable.NewLocking(b.store), lease: lease, elected: make(chan *machine, n+2), beats: map[time.Time]time.Time{}}
	b.store.OnCommit = func(step string, at time.Time, _, after map[string]table.Row) {
		if step == "confirm" || step == "heartbeat" {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.beats[after["mylock"].Token] = at
		}
	}
	for i := range n {
		c.join(fmt.Sprint("m", i))
	}
	return c
}

// join adds a candidate that does not run yet.
func (c *crowd) join(id string) *machine {
	var m *machine
	m = c.machine(id, WithLease(c.lease), WithObserver(func(ev Event) {
		if ev.Kind == Elected {
			c.elected <- m
		}
	}))
	m.link.Store = c.spanner
	c.machines = append(c.machines, m)
	return m
}

// start lets them run from one instant on.
func (c *crowd) start(ms ...*machine) {
	for _, m := range ms {
		ctx, stop := context.WithCancel(context.Background())
		m.stop = stop
		c.t.Cleanup(stop)
		require.NoError(c.t, m.Run(ctx, m.done))
	}
}

// next waits for the next to be elected, or returns nil.
func (c *crowd) next(limit time.Duration) *machine {
	select {
	case m := <-c.elected:
		return m
	case <-time.After(limit):
		return nil
	}
}

func (c *crowd) holders() (n int) {
	for _, m := range c.machines {
		if m.has() {
			n++
		}
	}
	return n
}

// since is how long ago the last heartbeat under a token was.
func (c *crowd) since(token Token) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.beats[table.Token(token).Time()])
}

// vacancies crashes the holder again and again, at any time between two heartbeats, and returns how long
// after its last heartbeat there was another, in order.
func (c *crowd) vacancies(holder *machine, rounds int) []time.Duration {
	c.t.Helper()
	var took []time.Duration
	for i := range rounds {
		time.Sleep(2*c.lease + time.Duration(i)*c.lease/3/time.Duration(rounds))
		old, token := holder, holder.tok()
		old.link.Cut()
		holder = c.next(20 * c.lease)
		require.NotNil(c.t, holder, "nobody was elected for 20 leases")
		took = append(took, c.since(token))
		assert.Equal(c.t, 1, c.holders())
		old.link.Mend()
	}
	slices.Sort(took)
	return took
}

func TestACrowdHasAHolderSoonAfterACrash(t *testing.T) {
	for _, s := range []struct {
		n     int
		lease time.Duration
	}{{3, 200 * time.Millisecond}, {100, 200 * time.Millisecond}, {1000, time.Second}} {
		t.Run(fmt.Sprintf("%d at %v", s.n, s.lease), func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				c := b.crowd(s.n, s.lease)
				start := time.Now()
				c.start(c.machines...)
				holder := c.next(10 * s.lease)
				require.NotNil(t, holder, "the first election takes longer than 10 leases")
				first := time.Since(start)
				took := c.vacancies(holder, 9)
				inLeases := func(d time.Duration) float64 { return d.Seconds() / s.lease.Seconds() }
				t.Logf("first %.3f leases, then median %.3f, worst %.3f", inLeases(first), inLeases(took[len(took)/2]), inLeases(took[len(took)-1]))
				assert.Less(t, inLeases(first), 1.3)
				assert.Less(t, inLeases(took[len(took)/2]), 1.3, "the median")
				assert.Less(t, inLeases(took[len(took)-1]), 3., "the worst")
				b.end(c.machines...)
			})
		})
	}
}

// A model in which a crowd elects whatever it does would show nothing.
func TestACrowdWithPessimisticReadsDoesNotElect(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		c := b.crowd(1000, time.Second)
		c.spanner.Pessimistic = true
		c.start(c.machines[0])
		holder := c.next(c.lease)
		require.NotNil(t, holder)
		c.start(c.machines[1:]...)
		time.Sleep(3 * c.lease)
		require.True(t, holder.has())
		holder.link.Cut()
		assert.Nil(t, c.next(4*c.lease), "elected")
		b.end(c.machines...)
	})
}

// dying is the way of a client that dies between a read and a commit.
type dying struct {
	table.Store
	died atomic.Bool
}

func (d *dying) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return d.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		_, err := fn(ctx, r)
		if err == nil {
			d.died.Store(true)
			err = memtable.ErrDied
		}
		return nil, err
	})
}

// vacancyAfterADeath is how long nobody is elected if the first to claim dies in the middle of it.
func vacancyAfterADeath(t *testing.T, pessimistic bool) (took time.Duration) {
	inVirtualTime(t, func(b *bed) {
		c := b.crowd(0, time.Second)
		c.spanner.Pessimistic = pessimistic
		victim := c.join("victim")
		d := &dying{Store: c.spanner}
		victim.link.Store = d
		c.start(victim)
		b.until(c.lease, d.died.Load)
		victim.link.Cut()
		start := time.Now()
		c.start(c.join("other"))
		require.NotNil(t, c.next(time.Minute))
		took = time.Since(start)
		b.end(c.machines...)
	})
	return took
}

func TestACandidateThatDiesInTheMiddleOfItsClaimDelaysNobody(t *testing.T) {
	assert.Less(t, vacancyAfterADeath(t, false), 50*time.Millisecond)
	assert.Greater(t, vacancyAfterADeath(t, true), 9*time.Second, "the model does not show what locks cost")
}

func TestAClaimDoesNotWaitForLocksWithSimilarNames(t *testing.T) {
	for name, n := range map[string]int{"job_%04d": 400, "job_%d": 180} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				c := b.crowd(n, time.Second)
				for i, m := range c.machines {
					m.Lock.name = fmt.Sprintf(name, i)
					c.start(m)
					time.Sleep(c.lease / 3 / time.Duration(n)) // so that there is always one that beats
				}
				for range n {
					require.NotNil(t, c.next(c.lease))
				}
				time.Sleep(3 * c.lease)
				a := c.join("a")
				a.Lock.name = "job"
				start := time.Now()
				c.start(a)
				require.Equal(t, a, c.next(time.Minute))
				assert.Less(t, time.Since(start), 50*time.Millisecond)
				assert.Equal(t, n+1, c.holders(), "a lock beside it was lost")
				b.end(c.machines...)
			})
		})
	}
}
