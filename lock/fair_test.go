package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
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

// The tests in this file let processes take turns in virtual time, on a model of Spanner's locks with round trips of
// five milliseconds.

// fairground is a table, and the processes that take turns at it.
type fairground struct {
	*testing.T
	rows    *memstore.Store
	spanner *memstore.Locking
	ctx     context.Context
	stop    context.CancelFunc
	all     sync.WaitGroup

	mu    sync.Mutex
	turns map[string]int             // of each process
	waits map[string][]time.Duration // of its turns
	idle  []time.Duration            // between two turns of whoever
	left  map[string]time.Time       // when each lock was given back last
	first time.Time                  // when the first turn began
	reads int
	again *rand.Rand // nil: no commit that queues is applied again
}

func takingTurns(t *testing.T, f func(g *fairground)) {
	fleet.Bubble(t, func(t *testing.T) {
		g := &fairground{T: t, rows: &memstore.Store{}, turns: map[string]int{}, waits: map[string][]time.Duration{}, left: map[string]time.Time{}}
		g.spanner = memstore.NewLocking(g.rows)
		g.ctx, g.stop = context.WithTimeout(context.Background(), time.Hour)
		defer g.all.Wait()
		defer g.stop() // also of a test that has failed
		f(g)
		g.stop()
		g.all.Wait()
		time.Sleep(time.Hour)
		assert.Empty(t, g.tickets(), "no ticket is left")
	})
}

// far is a connection to the table that takes longer.
type far struct {
	table.Store
	g     *fairground
	takes time.Duration
}

func (f far) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	f.g.mu.Lock()
	f.g.reads++
	f.g.mu.Unlock()
	time.Sleep(f.takes / 2)
	rows, at, err := f.Store.Read(ctx, step, bound, keys)
	time.Sleep(f.takes / 2)
	return rows, at, err
}

func (f far) Commit(ctx context.Context, step string, writes []table.Write) error {
	time.Sleep(f.takes / 2)
	err := f.Store.Commit(ctx, step, writes)
	f.g.mu.Lock()
	if step == "queue" && f.g.again != nil && f.g.again.IntN(5) == 0 {
		time.AfterFunc(time.Duration(f.g.again.IntN(3000))*time.Millisecond, func() { _ = f.Store.Commit(context.WithoutCancel(ctx), step, writes) })
	}
	f.g.mu.Unlock()
	time.Sleep(f.takes / 2)
	return err
}

// options returns the options of a process.
func (g *fairground) options(process string, takes time.Duration) []Option {
	return []Option{silent, options.Option(func(c *options.Config) { c.Store, c.Process = far{g.spanner, g, takes}, g.Name()+" "+process })}
}

func (g *fairground) mutex(process, name string) *Mutex {
	return New(nil, "locktable", name, g.options(process, 0)...)
}

// tickets returns all tickets in the table.
func (g *fairground) tickets() (keys []string) {
	rows, _, err := g.rows.Read(context.Background(), "test", table.Present, table.Keys{All: true, Prefix: "!wait/"})
	require.NoError(g, err)
	for _, row := range rows {
		keys = append(keys, row.Name)
	}
	return keys
}

type locking interface {
	Lock(context.Context) error
	Unlock(context.Context) error
}

// takes records how long the locks had no holder.
func (g *fairground) takes(names ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first.IsZero() {
		g.first = time.Now()
	}
	for _, name := range names {
		if last, ok := g.left[name]; ok {
			g.idle = append(g.idle, time.Since(last))
		}
	}
}

// taken returns when the first turn began.
func (g *fairground) taken() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first
}

func (g *fairground) gives(names ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		g.left[name] = time.Now()
	}
}

// loop takes turns until the end of the test.
func (g *fairground) loop(process string, m locking, hold time.Duration) {
	names := []string{"m"}
	if m, ok := m.(*Mutex); ok {
		names = m.names
	}
	g.all.Go(func() {
		for {
			began := time.Now()
			if m.Lock(g.ctx) != nil {
				return
			}
			g.mu.Lock()
			g.turns[process]++
			g.waits[process] = append(g.waits[process], time.Since(began))
			g.mu.Unlock()
			g.takes(names...)
			time.Sleep(hold)
			g.gives(names...)
			if m.Unlock(context.Background()) != nil {
				g.Error("it was lost")
			}
		}
	})
}

// run lets the processes take turns for that long. It returns the fewest and the most turns of a process, and the
// longest wait.
func (g *fairground) run(d time.Duration) (least, most int, longest time.Duration) {
	time.Sleep(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	least = 1 << 30
	for process, n := range g.turns {
		least, most = min(least, n), max(most, n)
		longest = max(longest, slices.Max(g.waits[process]))
	}
	slices.Sort(g.idle)
	if len(g.idle) > 0 {
		g.Logf("turns %d to %d, longest wait %v; idle %v median, %v of 95%%, %v most; %d reads a second", least, most, longest,
			g.idle[len(g.idle)/2], g.idle[len(g.idle)*95/100], g.idle[len(g.idle)-1], g.reads*int(time.Second)/int(d))
	}
	return least, most, longest
}

func TestProcessesTakeTurns(t *testing.T) {
	for _, c := range []struct {
		processes  int
		hold, time time.Duration
	}{{10, 20 * time.Millisecond, 8 * time.Second}, {3, 20 * time.Millisecond, 5 * time.Second}, {40, 500 * time.Millisecond, 25 * time.Second}} { // a poll reads 32
		t.Run(fmt.Sprint(c.processes, " of ", c.hold), func(t *testing.T) {
			takingTurns(t, func(g *fairground) {
				for i := range c.processes {
					p := fmt.Sprint("process ", i)
					g.loop(p, g.mutex(p, "m"), c.hold)
				}
				least, most, longest := g.run(c.time)
				assert.LessOrEqual(t, most-least, 1+20*int(time.Millisecond)/int(c.hold))
				assert.Len(t, g.turns, c.processes, "everybody has a turn")
				round := time.Duration(c.processes) * (c.hold + 20*time.Millisecond)
				assert.Less(t, longest, 2*round)
				assert.Less(t, slices.Max(g.idle), c.hold/8+30*time.Millisecond, "nobody waits for a grace, not at the first turn either")
			})
		})
	}
}

// A process gets the turns of one waiter, however many of its goroutines wait. A turn uses up the process's place, so the
// next goroutine queues behind the other processes.
func TestAProcessOfManyGoroutinesHasTheTurnsOfOne(t *testing.T) {
	for kind, lock := range map[string]func(g *fairground, process string) locking{
		"mutex": func(g *fairground, process string) locking { return g.mutex(process, "m") },
		"semaphore": func(g *fairground, process string) locking {
			return &slotLock{NewSemaphore(nil, "locktable", "s", 1, g.options(process, 0)...), nil}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			takingTurns(t, func(g *fairground) {
				for i := range 3 {
					p := fmt.Sprint("process ", i)
					for range 20 {
						g.loop(p, lock(g, p), 20*time.Millisecond)
					}
				}
				g.loop("alone", lock(g, "alone"), 20*time.Millisecond)
				g.run(10 * time.Second)
				all := 0
				for _, n := range g.turns {
					all += n
				}
				assert.InDelta(t, 0.25, float64(g.turns["alone"])/float64(all), 0.025)
			})
		})
	}
}

func TestASlowWaiterHasItsTurns(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		for i := range 9 {
			p := fmt.Sprint("process ", i)
			g.loop(p, g.mutex(p, "m"), 400*time.Millisecond)
		}
		g.loop("slow", New(nil, "locktable", "m", g.options("slow", 300*time.Millisecond)...), 400*time.Millisecond)
		_, most, _ := g.run(80 * time.Second)
		assert.GreaterOrEqual(t, float64(g.turns["slow"]), 0.7*float64(most), "its turns, of %d", most)
	})
}

// dead puts tickets of processes that have died into a queue.
func (g *fairground) dead(n int, queue string) {
	var writes []table.Write
	for i := range n {
		dead := table.Ticket{Queue: queue, Time: table.TokenAt(time.Now()) + table.Token(i), Nonce: fmt.Sprint("dead", i), ID: "dead", Grace: 215 * time.Millisecond}
		writes = append(writes, dead.Put())
	}
	require.NoError(g, g.rows.Commit(context.Background(), "test", writes))
}

func TestTryLockPassesNobody(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder, waiter, other := g.mutex("holder", "m"), g.mutex("waiter", "m"), g.mutex("other", "m")
		require.NoError(t, holder.Lock(g.ctx))
		locked := make(chan error, 1)
		go func() { locked <- waiter.Lock(g.ctx) }()
		time.Sleep(2 * time.Second)
		require.NoError(t, holder.Unlock(g.ctx))
		ok, err := other.TryLock(g.ctx)
		require.NoError(t, err)
		if !assert.False(t, ok, "another waits") {
			require.NoError(t, other.Unlock(g.ctx))
		}
		require.NoError(t, <-locked)
		require.NoError(t, waiter.Unlock(g.ctx))
		ok, err = other.TryLock(g.ctx)
		require.NoError(t, err)
		assert.True(t, ok, "nobody waits any more")
		require.NoError(t, other.Unlock(g.ctx))
	})
}

func TestAWaiterThatGivesUpLeavesTheQueueAndSaysItsPlace(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(g.ctx, 5*time.Second)
		defer cancel()
		for i := range 3 {
			time.Sleep(100 * time.Millisecond)
			all.Go(func() {
				err := g.mutex(fmt.Sprint("waiter ", i), "m").Lock(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorContains(t, err, "held:")
				switch i {
				case 0:
					assert.NotContains(t, err.Error(), "in the queue")
				case 1:
					assert.ErrorContains(t, err, "another process was ahead of this one in the queue")
				case 2:
					assert.ErrorContains(t, err, "2 other processes were ahead of this one in the queue")
				}
			})
		}
		time.Sleep(time.Second)
		assert.Len(t, g.tickets(), 3)
		all.Wait()
		time.Sleep(time.Second)
		assert.Empty(t, g.tickets())
		require.NoError(t, holder.Unlock(g.ctx))
	})
}

// A set waits without keeping its locks from others, until only their holders are before it.
func TestASetGetsItsTurnAndLeavesNoLockIdleForLong(t *testing.T) {
	const singles = 5
	takingTurns(t, func(g *fairground) {
		names := []string{"a", "b", "c"}
		for _, name := range names {
			for i := range singles {
				p := fmt.Sprint("process ", name, i)
				g.loop(p, g.mutex(p, name), 2*time.Second)
			}
		}
		time.Sleep(10 * time.Second)
		set := All(nil, "locktable", names, g.options("set", 0)...)
		for range 3 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(g.ctx, 5*time.Minute)
			err := set.Lock(ctx)
			cancel()
			require.NoError(t, err)
			took := time.Since(began)
			t.Logf("the set waited for %v", took)
			assert.Less(t, took, 2*time.Duration(singles)*(2*time.Second+20*time.Millisecond), "two rounds")
			g.takes(names...)
			time.Sleep(2 * time.Second)
			g.gives(names...)
			require.NoError(t, set.Unlock(g.ctx))
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		t.Logf("a lock was idle for %v at most", slices.Max(g.idle))
		assert.Less(t, slices.Max(g.idle), 3*time.Second, "for a turn of the others' holders")
	})
}

func TestWaitersOfASemaphoreTakeTheirTurns(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		for i := range 8 {
			p := fmt.Sprint("process ", i)
			s := NewSemaphore(nil, "locktable", "s", 3, g.options(p, 0)...)
			g.loop(p, &slotLock{s, nil}, 100*time.Millisecond)
		}
		least, most, longest := g.run(12 * time.Second)
		assert.LessOrEqual(t, most-least, most/10+2)
		assert.Less(t, longest, 3*4*130*time.Millisecond)
		assert.Greater(t, least, 12)
	})
}

// slotLock is a semaphore in the form of a lock.
type slotLock struct {
	*Semaphore
	permit *Permit
}

func (p *slotLock) Lock(ctx context.Context) (err error) {
	p.permit, err = p.Acquire(ctx)
	return err
}

func (p *slotLock) Unlock(ctx context.Context) error { return p.permit.Release(ctx) }

// The second waiter may still be in a pause that it began in a long turn when a short one ends. Those behind it know that and
// leave the lock to it, even if they have polled during the short turn.
func TestNobodyIsPassedOverAfterAShortTurn(t *testing.T) {
	for i := range 20 {
		turn := time.Duration(1+i) * 5 * time.Millisecond
		takingTurns(t, func(g *fairground) {
			holder := g.mutex("holder", "m")
			require.NoError(t, holder.Lock(g.ctx))
			time.Sleep(time.Minute)
			var order []int
			for i := range 5 {
				m := g.mutex(fmt.Sprint("waiter ", i), "m")
				g.all.Go(func() {
					assert.NoError(t, m.Lock(g.ctx))
					order = append(order, i)
					time.Sleep(turn)
					assert.NoError(t, m.Unlock(context.Background()))
				})
				time.Sleep(time.Second)
			}
			require.NoError(t, holder.Unlock(g.ctx))
			g.all.Wait()
			assert.True(t, slices.IsSorted(order), "%v", order)
		})
	}
}

// Waiters of which there are many replace a holder that has crashed soon after its lease, and do not all claim at once.
func TestACrowdOfWaitersOutlivesAHolder(t *testing.T) {
	const lease, many = time.Second, 40
	takingTurns(t, func(g *fairground) {
		var mu sync.Mutex
		var claims []time.Time
		locked := make(chan *memstore.Link, many)
		for i := range many {
			m, link := g.linked(fmt.Sprint("process ", i), "m", spindle.WithLease(lease))
			link.After(func(step string) {
				if step == "claim" {
					mu.Lock()
					claims = append(claims, time.Now())
					mu.Unlock()
				}
			})
			g.all.Go(func() {
				if m.Lock(g.ctx) == nil {
					locked <- link
					<-g.ctx.Done()
					_ = m.Unlock(context.Background())
				}
			})
		}
		holder := <-locked
		time.Sleep(lease)
		mu.Lock()
		claims = nil // those of waiters that had no ticket yet
		mu.Unlock()
		var took []time.Duration
		for range 3 {
			time.Sleep(2 * lease)
			holder.Cut()
			crashed := time.Now()
			holder = <-locked
			took = append(took, time.Since(crashed))
		}
		slices.Sort(took)
		mu.Lock()
		most := 0
		for i, first := 0, 0; i < len(claims); i++ {
			for claims[i].Sub(claims[first]) >= 10*time.Millisecond {
				first++
			}
			most = max(most, i-first+1)
		}
		mu.Unlock()
		t.Logf("median %v, worst %v; %d claims, at most %d within 10ms", took[len(took)/2], took[len(took)-1], len(claims), most)
		assert.GreaterOrEqual(t, took[0], lease/2, "its last heartbeat was sent at most a third of the lease before, and a little more")
		assert.Less(t, took[len(took)/2], lease+3*lease/10, "the median")
		assert.Less(t, took[len(took)-1], 3*lease, "the worst")
		assert.Less(t, most, 5)
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
				dead, waits := b.process(), b.process()
				held, err := take(dead, b.Context())
				require.NoError(t, err)
				dead.Cut()
				start := time.Now()
				next, err := take(waits, b.Context())
				require.NoError(t, err)
				assert.InDelta(t, lease.Seconds(), time.Since(start).Seconds(), 2)
				dead.Mend()
				assert.ErrorIs(t, held.giveBack(b.Context()), ErrNotHeld)
				require.NoError(t, next.giveBack(b.Context()))
			})
		})
	}
}
