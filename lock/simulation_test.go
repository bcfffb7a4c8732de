package lock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// This file runs mutexes, sets and semaphores in virtual time on a table in memory. The wires have delays, losses and
// outages, transactions are run again, commits are applied late and twice, and the processes crash. All users are
// checked every millisecond. Some of them exit in the middle of a clean-up. Every random choice comes from the seed.

var simSeed = flag.Uint64("lock.seed", 0, "run only this seed of the simulation")

const simLease = 2 * time.Second

// dice are the random choices of one user, which the actions of other users at the same instant do not change.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func newDice(seed, of uint64) *dice { return &dice{rnd: rand.New(rand.NewPCG(seed, of))} }

func (d *dice) upTo(n time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rnd.Int64N(int64(n)))
}

func (d *dice) one(in int) bool { return d.upTo(time.Duration(in)) == 0 }

// simClock is the clock of one user for one turn.
type simClock struct {
	elect.SystemClock
	seed, of uint64
}

// Random depends on the instant, and not on earlier calls. Goroutines of one turn can call it at the same instant, in
// any order, for example when a lease ends.
func (c simClock) Random(d time.Duration) time.Duration {
	return newDice(c.seed^uint64(time.Now().UnixNano()), c.of^uint64(d)).upTo(d)
}

// wire is one user's connection to the table for one turn.
type wire struct {
	*dice
	store table.Store
	sick  error       // of each claim and confirmation
	dead  atomic.Bool // the process crashed: nothing passes any more
	away  atomic.Bool // an outage
	deaf  atomic.Bool // an outage of heartbeats only

	faults *atomic.Bool // whether there are any; nil: there are
}

// bad is true once in so many times, while there are faults.
func (w *wire) bad(in int) bool { return w.one(in) && (w.faults == nil || w.faults.Load()) }

var errWire = errors.New("lost on the wire")

func (w *wire) delay() {
	d := w.upTo(8 * time.Millisecond)
	if w.bad(200) {
		d = w.upTo(2 * simLease)
	}
	time.Sleep(d)
}

func (w *wire) pass(ctx context.Context, step string, f func() error) error {
	w.delay()
	if w.dead.Load() || w.away.Load() || w.bad(60) || (w.deaf.Load() && step == "heartbeat") {
		<-ctx.Done()
		return errWire
	}
	if w.sick != nil && (step == "claim" || step == "confirm") {
		return w.sick
	}
	if ctx.Err() != nil && w.one(2) {
		return errWire // else it lands late, with nobody waiting for it
	}
	err := f()
	w.delay()
	if w.dead.Load() || w.bad(60) {
		<-ctx.Done()
		return errWire
	}
	if ctx.Err() != nil {
		return errWire
	}
	return err
}

func (w *wire) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) (rows []table.Row, at time.Time, err error) {
	err = w.pass(ctx, step, func() (err error) {
		rows, at, err = w.store.Read(context.WithoutCancel(ctx), step, bound, keys)
		return err
	})
	return rows, at, err
}

// Commit is a blind commit with at-least-once semantics, which may be applied again at any later time.
func (w *wire) Commit(ctx context.Context, step string, writes []table.Write) error {
	return w.pass(ctx, step, func() error {
		again := func() { _ = w.store.Commit(context.WithoutCancel(ctx), step, writes) }
		if w.bad(20) {
			time.AfterFunc(w.upTo(3*simLease), again)
		}
		return w.store.Commit(context.WithoutCancel(ctx), step, writes)
	})
}

// Transact runs a transaction again after a lost reply, as a client may, and returns the second result.
func (w *wire) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (at time.Time, err error) {
	err = w.pass(ctx, step, func() (err error) {
		at, err = w.store.Transact(context.WithoutCancel(ctx), step, fn)
		if err == nil && w.bad(20) {
			w.delay()
			at, err = w.store.Transact(context.WithoutCancel(ctx), step, fn)
		}
		return err
	})
	return at, err
}

// user takes turns, and crashes now and then.
type user struct {
	*dice
	names []string // of which it takes some, if it takes a set
	slots int      // of the semaphore names[0], or 0
	sick  bool     // its claims come to nothing, and it has half the lease of the others
	home  int      // the process that it lives in
}

// cast is the users of a table, and how many of them can hold each name.
type cast struct {
	users []user
	most  map[string]int
}

func mutexUsers(home int, names ...string) (all []user) {
	for i, name := range names {
		all = append(all, user{names: []string{name}, home: home + i})
	}
	return all
}

func slotUsers(home int, name string, slots, n int) (all []user) {
	for i := range n {
		all = append(all, user{names: []string{name}, slots: slots, home: home + i/2})
	}
	return all
}

func sets() (all []user) {
	for i := range 6 {
		all = append(all, user{names: []string{"thing-0", "thing-1", "thing-2", "thing-3", "thing-4", "thing-5"}, home: i})
	}
	return all
}

var sick = user{names: []string{"m"}, sick: true, home: 100}

var casts = map[string]cast{
	"mutex":     {users: append(mutexUsers(0, "m", "m", "m"), append(mutexUsers(1, "m", "m"), sick)...)},
	"set":       {users: sets()},
	"semaphore": {users: slotUsers(0, "s", 3, 8), most: map[string]int{"s": 3}},
	"sizes":     {users: append(slotUsers(0, "s", 3, 4), append(slotUsers(10, "s", 5, 4), slotUsers(20, "s", 1, 2)...)...), most: map[string]int{"s": 5}},
	"neighbours": {
		users: append(append(mutexUsers(0, "m", "m", "m_0001", "m_1", "m_12345678", "m/slot/0042", "m/slot/0000_b"),
			slotUsers(20, "m", 2, 4)...), slotUsers(30, "m/slot/0001", 1, 1)...),
		most: map[string]int{"m semaphore": 2},
	},
}

// world is a table, its users, and what each of them holds at present.
type world struct {
	t     *testing.T
	store *memstore.Store
	dice  *dice
	seed  uint64

	mu     sync.Mutex
	tokens []func() spindle.Token // of each user that was given something, what it says of it
	names  [][]string
	wires  []*wire
	turns  map[string]int
}

func (w *world) hold(u int, names []string, token func() spindle.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens[u], w.names[u] = token, names
	for _, name := range names {
		w.turns[name]++
	}
}

func (w *world) drop(u int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens[u] = nil
}

// check counts the holders of each name.
func (w *world) check(most map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[string]int{}
	for u, token := range w.tokens {
		if token == nil || token() == 0 {
			continue
		}
		for _, name := range w.names[u] {
			if count[name]++; count[name] > max(most[name], 1) {
				w.t.Fatalf("%d holders of %s at %v", count[name], name, time.Now())
			}
		}
	}
}

// checkWaiters checks that nobody counts as waiting after the end, whatever tickets are left.
func (w *world) checkWaiters() {
	all, _, err := operator.List(context.Background(), table.Table{Store: w.store}, "", true)
	if err != nil {
		w.t.Error(err)
	}
	for _, l := range all {
		if len(l.Waiters) > 0 {
			w.t.Errorf("%s has %d waiters when all have gone", l.Name, len(l.Waiters))
		}
	}
}

// outage cuts off some users, or only their heartbeats, for a while.
func (w *world) outage(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	heartbeats := w.dice.one(2)
	for _, wire := range w.wires {
		if wire == nil || w.dice.one(2) {
			continue
		}
		off := &wire.away
		if heartbeats {
			off = &wire.deaf
		}
		off.Store(true)
		time.AfterFunc(d, func() { off.Store(false) })
	}
}

// connect returns a wire for one turn of a user, and the options that install it.
func (w *world) connect(u int, who user, turn int) (*wire, []Option) {
	wire := &wire{dice: newDice(w.seed, uint64(u)<<32|uint64(turn)+1), store: w.store}
	lease := simLease
	if who.sick {
		lease /= 2
		wire.sick = refused([]codes.Code{codes.FailedPrecondition, codes.Internal}[turn%2])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wires[u] = wire
	clock := simClock{seed: w.seed, of: uint64(u)<<32 | uint64(turn) | 1<<31}
	return wire, []Option{silent, spindle.WithLease(lease),
		options.Option(func(c *options.Config) {
			c.Store, c.Clock, c.Process = wire, clock, fmt.Sprint("simulated process ", who.home)
		})}
}

// take describes what a user takes in its turn, with the functions that take it and give it back.
func (w *world) take(ctx context.Context, u int, who user, opts []Option) (token func() spindle.Token, names []string, giveBack func(context.Context) error, err error) {
	if who.slots > 0 {
		s := NewSemaphore(nil, "locktable", who.names[0], who.slots, opts...)
		p, err := s.Acquire(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		return p.Token, []string{strings.Replace(who.names[0], "m", "m semaphore", 1)}, p.Release, nil
	}
	m := w.mutex(u, who, opts)
	err = m.Lock(ctx)
	return m.Token, m.names, m.Unlock, err
}

func (w *world) mutex(u int, who user, opts []Option) *mutex {
	m := &New(nil, "locktable", who.names[0], opts...).mutex
	if len(who.names) > 1 {
		var some []string
		for i, name := range who.names {
			if who.one(2) || i == u {
				some = append(some, name)
			}
		}
		m = &All(nil, "locktable", some, opts...).mutex
	}
	return m
}

// toil is a turn by Do, whose work may hang: it makes no progress for up to four leases, and then returns.
func (w *world) toil(ctx context.Context, u int, who user, opts []Option) {
	opts = append(opts, spindle.WithStall(simLease/2))
	work := func(ctx context.Context, names []string, token func() spindle.Token) error {
		w.hold(u, names, token)
		defer w.drop(u)
		for who.one(2) {
			time.Sleep(who.upTo(simLease / 2))
			_ = Progress(ctx)
		}
		if who.one(2) {
			time.Sleep(who.upTo(4 * simLease))
		}
		if errors.Is(context.Cause(ctx), spindle.ErrStalled) {
			assert.Zero(w.t, token(), "work that has stalled holds nothing")
			w.hold(u, []string{"stalled"}, token)
		}
		return nil
	}
	if who.slots == 0 {
		m := w.mutex(u, who, opts)
		_ = Do(ctx, m, func(ctx context.Context) error { return work(ctx, m.names, m.Token) })
		return
	}
	s := NewSemaphore(nil, "locktable", who.names[0], who.slots, opts...)
	_ = Do(ctx, s, func(ctx context.Context) error {
		return work(ctx, []string{strings.Replace(who.names[0], "m", "m semaphore", 1)}, s.Permit(ctx).Token)
	})
}

// turn takes the lock, holds it for a short time, and gives it back, or crashes in between.
func (w *world) turn(u int, who user, n int) {
	wire, opts := w.connect(u, who, n)
	patience := 10 * simLease
	if who.sick {
		patience = 2 * time.Minute // the whole run, unless the error lasts
	}
	exits, within := who.one(8) && !who.sick, who.upTo(30*time.Millisecond)
	if exits {
		patience = who.upTo(simLease)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if exits { // the program ends while it cleans up
		time.AfterFunc(patience+within, func() { wire.dead.Store(true) })
	}
	if !who.sick && who.one(6) {
		w.toil(ctx, u, who, opts)
		return
	}
	token, names, giveBack, err := w.take(ctx, u, who, opts)
	switch {
	case who.sick && err != nil:
		return
	case who.sick:
		w.t.Error("a sick user was given the lock")
	case errors.Is(err, context.DeadlineExceeded):
		return
	case err != nil:
		w.t.Errorf("user %d: %v", u, err)
		return
	}
	w.hold(u, names, token)
	time.Sleep(who.upTo(simLease))
	w.drop(u)
	if who.one(10) {
		wire.dead.Store(true)
	}
	_ = giveBack(ctx)
}

// simulate returns how many turns each name had.
func simulate(t *testing.T, seed uint64, c cast) (turns map[string]int) {
	fleet.Bubble(t, func(t *testing.T) {
		n := len(c.users)
		w := &world{t: t, store: &memstore.Store{}, dice: newDice(seed, 0), seed: seed, turns: map[string]int{},
			tokens: make([]func() spindle.Token, n), names: make([][]string, n), wires: make([]*wire, n)}
		end := time.Now().Add(2 * time.Minute)
		var all sync.WaitGroup
		for u, who := range c.users {
			who.dice = newDice(seed, uint64(u)+1<<63)
			all.Go(func() {
				for turn := 0; time.Now().Before(end); turn++ {
					time.Sleep(who.upTo(50 * time.Millisecond))
					w.turn(u, who, turn)
				}
			})
		}
		for time.Now().Before(end) {
			time.Sleep(time.Millisecond)
			w.check(c.most)
			if w.dice.one(5000) {
				w.outage(w.dice.upTo(3 * simLease))
			}
		}
		all.Wait()
		time.Sleep(time.Hour) // whatever hangs ends with its time-out
		w.checkWaiters()
		turns = w.turns
	})
	return turns
}

func TestSimulation(t *testing.T) {
	seeds := []uint64{1, 2, 3, rand.Uint64(), rand.Uint64()}
	if *simSeed != 0 {
		seeds = []uint64{*simSeed}
	}
	for name, c := range casts {
		t.Run(name, func(t *testing.T) {
			for _, seed := range fleet.Part(seeds...) {
				t.Logf("again: go test -run 'TestSimulation/%s' ./lock -lock.seed=%d", name, seed)
				turns := simulate(t, seed, c)
				for _, who := range c.users {
					for _, wanted := range who.names {
						if who.slots > 0 {
							wanted = strings.Replace(wanted, "m", "m semaphore", 1)
						}
						if turns[wanted] < 10 {
							t.Errorf("%s had %d turns: nobody gets it", wanted, turns[wanted])
						}
					}
				}
				t.Logf("turns: %v", turns)
			}
		})
	}
}
