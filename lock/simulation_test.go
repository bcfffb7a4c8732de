package lock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/memtable"
	"github.com/spindle-lock/spindle/internal/table"
)

// This file runs mutexes, sets and semaphores in virtual time on a table in memory, over wires with
// delays, losses and outages, in processes that crash. At each millisecond everybody is asked.

var simSeed = flag.Uint64("lock.seed", 0, "run only this seed of the simulation")

const simLease = 2 * time.Second

// wire is one process's way to the table.
type wire struct {
	store table.Store
	mu    sync.Mutex
	rnd   *rand.Rand
	dead  atomic.Bool // the process crashed: nothing passes any more
	away  atomic.Bool // an outage
}

var errWire = errors.New("lost on the wire")

func (w *wire) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n) == 0
}

func (w *wire) delay() {
	w.mu.Lock()
	d := time.Duration(w.rnd.Int64N(int64(8 * time.Millisecond)))
	if w.rnd.IntN(200) == 0 {
		d = time.Duration(w.rnd.Int64N(int64(2 * simLease)))
	}
	w.mu.Unlock()
	time.Sleep(d)
}

func (w *wire) pass(ctx context.Context, f func() error) error {
	w.delay()
	if w.dead.Load() || w.away.Load() || w.chance(60) {
		<-ctx.Done()
		return errWire
	}
	if ctx.Err() != nil && w.chance(2) {
		return errWire // else it lands late, with nobody waiting for it
	}
	err := f()
	w.delay()
	if w.dead.Load() || w.chance(60) {
		<-ctx.Done()
		return errWire
	}
	if ctx.Err() != nil {
		return errWire
	}
	return err
}

func (w *wire) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) (rows []table.Row, at time.Time, err error) {
	err = w.pass(ctx, func() (err error) {
		rows, at, err = w.store.Read(context.WithoutCancel(ctx), step, bound, keys)
		return err
	})
	return rows, at, err
}

func (w *wire) Commit(ctx context.Context, step string, writes []table.Write) error {
	return w.pass(ctx, func() error { return w.store.Commit(context.WithoutCancel(ctx), step, writes) })
}

func (w *wire) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (at time.Time, err error) {
	err = w.pass(ctx, func() (err error) {
		at, err = w.store.Transact(context.WithoutCancel(ctx), step, fn)
		return err
	})
	return at, err
}

// world is a table, its users, and what each of them holds now.
type world struct {
	t     *testing.T
	store *memtable.Store
	rnd   *rand.Rand

	mu      sync.Mutex
	holders map[int]func() spindle.Token // of each user that was given something, what it says of it
	names   map[int][]string
	turns   int
	wires   []*wire
}

func (w *world) random(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

// connect puts a stand on the table, as a process of its own.
func (w *world) connect(s *stand, process int) *wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	wire := &wire{store: w.store, rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 0))}
	w.wires = append(w.wires, wire)
	s.table = table.Table{Store: wire}
	s.database = func() string { return fmt.Sprint("process ", process) }
	s.clock = elect.SystemClock{}
	return wire
}

func (w *world) hold(user int, names []string, token func() spindle.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders[user], w.names[user] = token, names
	w.turns++
}

func (w *world) drop(user int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holders, user)
}

// check counts the holders of each name.
func (w *world) check(most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[string]int{}
	for user, token := range w.holders {
		if token() == 0 {
			continue
		}
		for _, name := range w.names[user] {
			if count[name]++; count[name] > most {
				w.t.Fatalf("%d holders of %s at %v", count[name], name, time.Now())
			}
		}
	}
}

// use is one user: it takes turns until the end, and crashes now and then.
type use func(w *world, user int)

func simulate(t *testing.T, seed uint64, users, most int, u use) (turns int) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: &memtable.Store{}, rnd: rand.New(rand.NewPCG(seed, 1)),
			holders: map[int]func() spindle.Token{}, names: map[int][]string{}}
		end := time.Now().Add(2 * time.Minute)
		var all sync.WaitGroup
		for user := range users {
			all.Add(1)
			go func() {
				defer all.Done()
				for time.Now().Before(end) {
					u(w, user)
					time.Sleep(time.Duration(w.random(50)) * time.Millisecond)
				}
			}()
		}
		for time.Now().Before(end) {
			time.Sleep(time.Millisecond)
			w.check(most)
			if w.random(5000) == 0 {
				w.outage(time.Duration(w.random(int(3 * simLease))))
			}
		}
		all.Wait()
		time.Sleep(time.Hour) // whatever hangs ends with its time-out
		turns = w.turns
	})
	return turns
}

// outage cuts some users off for a while.
func (w *world) outage(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wire := range w.wires {
		if w.rnd.IntN(2) == 0 {
			wire.away.Store(true)
			time.AfterFunc(d, func() { wire.away.Store(false) })
		}
	}
	w.wires = nil
}

var simOptions = []spindle.Option{spindle.WithLease(simLease), spindle.WithLogger(slog.New(slog.DiscardHandler))}

// turn locks, holds for a moment, and unlocks, or crashes with the lock held.
func (w *world) turn(user int, m *mutex) {
	wire := w.connect(&m.stand, user)
	ctx, cancel := context.WithTimeout(context.Background(), 10*simLease)
	defer cancel()
	if m.Lock(ctx) != nil {
		return
	}
	w.hold(user, m.names, m.Token)
	time.Sleep(time.Duration(w.random(int(simLease))))
	w.drop(user)
	if w.random(10) == 0 {
		wire.dead.Store(true)
	}
	_ = m.Unlock(ctx)
}

func useMutex(w *world, user int) {
	w.turn(user, &New(&spanner.Client{}, "locktable", "m", simOptions...).mutex)
}

func useSet(w *world, user int) {
	var names []string
	for i := range 6 {
		if w.random(2) == 0 || i == user%6 {
			names = append(names, fmt.Sprint("thing-", i))
		}
	}
	w.turn(user, &All(&spanner.Client{}, "locktable", names, simOptions...).mutex)
}

func useSemaphore(w *world, user int) {
	s := NewSemaphore(&spanner.Client{}, "locktable", "s", 3, simOptions...)
	wire := w.connect(&s.stand, user)
	ctx, cancel := context.WithTimeout(context.Background(), 10*simLease)
	defer cancel()
	p, err := s.Acquire(ctx)
	if err != nil {
		return
	}
	w.hold(user, []string{"s"}, p.Token)
	time.Sleep(time.Duration(w.random(int(simLease))))
	w.drop(user)
	if w.random(10) == 0 {
		wire.dead.Store(true)
	}
	_ = p.Release(ctx)
}

func TestSimulation(t *testing.T) {
	seeds := []uint64{1, 2, 3, rand.Uint64(), rand.Uint64()}
	if *simSeed != 0 {
		seeds = []uint64{*simSeed}
	}
	for name, c := range map[string]struct {
		users, most int
		use         use
	}{"mutex": {5, 1, useMutex}, "set": {6, 1, useSet}, "semaphore": {8, 3, useSemaphore}} {
		t.Run(name, func(t *testing.T) {
			var turns int
			for _, seed := range seeds {
				t.Logf("again: go test -run 'TestSimulation/%s' ./lock -lock.seed=%d", name, seed)
				turns += simulate(t, seed, c.users, c.most, c.use)
			}
			if turns < 20*len(seeds) {
				t.Errorf("%d turns in %d runs: nobody gets the lock", turns, len(seeds))
			}
			t.Logf("%d turns", turns)
		})
	}
}
