package elect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// The tests in this file run crowds in virtual time on a model of Spanner's locks, with round trips of five
// milliseconds. Random choices stay random, so the tests check bounds.

// crowd is a number of candidates for one lock, all with the same lease.
type crowd struct {
	*fleet.Fleet
	spanner  *memstore.Locking
	lease    time.Duration
	machines []*fleet.Machine
	elected  chan *fleet.Machine

	mu    sync.Mutex
	beats map[time.Time]time.Time // the last heartbeat under each token
}

func crowdOn(b *fleet.Fleet, n int, lease time.Duration) *crowd {
	return crowdOf(b, n, lease, func(int) string { return fleet.Name })
}

// crowdOf returns a crowd with a separate lock for each candidate, according to its number.
func crowdOf(b *fleet.Fleet, n int, lease time.Duration, name func(int) string) *crowd {
	c := &crowd{Fleet: b, spanner: memstore.NewLocking(b.Store), lease: lease, elected: make(chan *fleet.Machine, n+2), beats: map[time.Time]time.Time{}}
	b.Store.OnCommit = func(step string, at time.Time, _, after map[string]table.Row) {
		if step == "confirm" || step == "heartbeat" {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.beats[after["mylock"].Token] = at
		}
	}
	for i := range n {
		c.join(name(i), fmt.Sprint("m", i))
	}
	return c
}

// join adds a candidate that is not running yet.
func (c *crowd) join(name, id string) *fleet.Machine {
	var m *fleet.Machine
	m = c.Named(name, id, spindle.WithLease(c.lease), spindle.WithObserver(func(ev spindle.Event) {
		if ev.Kind == spindle.Elected {
			c.elected <- m
		}
	}))
	m.Link.Store = c.spanner
	c.machines = append(c.machines, m)
	return m
}

// start makes all candidates run from the same instant.
func (c *crowd) start(ms ...*fleet.Machine) {
	for _, m := range ms {
		ctx, stop := context.WithCancel(context.Background())
		m.Stop = stop
		c.T.Cleanup(stop)
		require.NoError(c.T, m.Run(ctx, m.Done))
	}
}

// next waits for the next election and returns its winner, or nil.
func (c *crowd) next(limit time.Duration) *fleet.Machine {
	select {
	case m := <-c.elected:
		return m
	case <-time.After(limit):
		return nil
	}
}

func (c *crowd) holders() (n int) {
	for _, m := range c.machines {
		if m.Has() {
			n++
		}
	}
	return n
}

// since returns how long ago the last heartbeat under a token was.
func (c *crowd) since(token spindle.Token) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.beats[table.Token(token).Time()])
}

// vacancies crashes the holder again and again, at any time between two heartbeats. It returns, in order, how long it
// took from each last heartbeat until the next holder was elected. The crashed process is back before the next crash,
// because the requests that it sent in vain take up to a second.
func (c *crowd) vacancies(holder *fleet.Machine, rounds int) []time.Duration {
	c.T.Helper()
	var took []time.Duration
	for i := range rounds {
		time.Sleep(max(c.lease, time.Second) + time.Duration(i)*c.lease/3/time.Duration(rounds))
		old, token := holder, holder.Token()
		old.Link.Cut()
		holder = c.next(20 * c.lease)
		require.NotNil(c.T, holder, "nobody was elected for 20 leases")
		took = append(took, c.since(token))
		assert.Equal(c.T, 1, c.holders())
		old.Link.Mend()
	}
	slices.Sort(took)
	return took
}

func TestACrowdHasAHolderSoonAfterACrash(t *testing.T) {
	for _, s := range []struct {
		n      int
		lease  time.Duration
		median float64 // in leases: a crowd that claims all at once is slower
	}{{3, 200 * time.Millisecond, 1.3}, {100, 200 * time.Millisecond, 1.3}, {1000, time.Second, 1.15}} {
		t.Run(fmt.Sprintf("%d at %v", s.n, s.lease), func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				c := crowdOn(b, s.n, s.lease)
				start := time.Now()
				c.start(c.machines...)
				holder := c.next(10 * s.lease)
				require.NotNil(t, holder, "the first election takes longer than 10 leases")
				first := time.Since(start)
				took := c.vacancies(holder, 5)
				inLeases := func(d time.Duration) float64 { return d.Seconds() / s.lease.Seconds() }
				t.Logf("first %.3f leases, then median %.3f, worst %.3f", inLeases(first), inLeases(took[len(took)/2]), inLeases(took[len(took)-1]))
				assert.Less(t, inLeases(first), 1.3)
				assert.Less(t, inLeases(took[len(took)/2]), s.median, "the median")
				assert.Less(t, inLeases(took[len(took)-1]), 3., "the worst")
				b.End(c.machines...)
			})
		})
	}
}

// dying is the store of a client that dies between a read and a commit.
type dying struct {
	table.Store
	died atomic.Bool
}

func (d *dying) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return d.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		_, err := fn(ctx, r)
		if err == nil {
			d.died.Store(true)
			err = errors.New("the client died")
		}
		return nil, err
	})
}

// A claimant that dies in the middle of its claim leaves no locks of rows, because its transaction is optimistic.
func TestACandidateThatDiesInTheMiddleOfItsClaimDelaysNobody(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		c := crowdOn(b, 0, time.Second)
		victim := c.join(fleet.Name, "victim")
		d := &dying{Store: c.spanner}
		victim.Link.Store = d
		c.start(victim)
		b.Until(c.lease, d.died.Load)
		victim.Link.Cut()
		start := time.Now()
		c.start(c.join(fleet.Name, "other"))
		require.NotNil(t, c.next(time.Minute))
		assert.Less(t, time.Since(start), 50*time.Millisecond)
		b.End(c.machines...)
	})
}

func TestAClaimDoesNotWaitForLocksWithSimilarNames(t *testing.T) {
	for name, n := range map[string]int{"job_%04d": 100, "job_%d": 60} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				c := crowdOf(b, n, time.Second, func(i int) string { return fmt.Sprintf(name, i) })
				for _, m := range c.machines {
					c.start(m)
					time.Sleep(c.lease / 3 / time.Duration(n)) // so that there is always one that beats
				}
				for range n {
					require.NotNil(t, c.next(c.lease))
				}
				time.Sleep(3 * c.lease)
				a := c.join("job", "a")
				start := time.Now()
				c.start(a)
				require.Equal(t, a, c.next(time.Minute))
				assert.Less(t, time.Since(start), 50*time.Millisecond)
				assert.Equal(t, n+1, c.holders(), "a lock beside it was lost")
				b.End(c.machines...)
			})
		})
	}
}
