package week

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/lock"
)

var (
	flagSeed = flag.Uint64("seed", 0, "draw the faults from this seed; 0: from a fresh one, which is printed")
	flagFor  = flag.Duration("for", 2*time.Hour, "how much virtual time to run; a week is 168h")
)

const (
	lease      = 10 * time.Second
	look       = lease / 100 // between two looks at who holds the locks
	partitions = 4
)

// kinds are what runs: how many locks it has, how soon each has a holder once there are no faults, and the life of a
// process from its start until its ctx ends.
var kinds = map[string]struct {
	locks int
	soon  time.Duration // a mutex: with the grace of a waiter that was cut off with the holder, a tenth of a lease
	live  func(context.Context, *machine)
}{
	"elector": {1, lease + lease/10, func(ctx context.Context, m *machine) {
		opts := []spindle.Option{m.options(), spindle.WithLeader(func(ctx context.Context, term spindle.Term) {
			m.begins(0, term.Token(), term.Fence())
			<-ctx.Done()
		})}
		if m.number == 0 {
			opts = append(opts, spindle.WithHandover())
		}
		l := spindle.New(nil, "locktable", "lock", opts...)
		m.become(func(int) (bool, spindle.Token) { return l.HasLock() })
		_ = l.RunAndWait(ctx)
	}},
	"mutex": {1, lease + lease/5, func(ctx context.Context, m *machine) {
		l := lock.New(nil, "locktable", "lock", m.options())
		m.become(func(int) (bool, spindle.Token) { t := l.Token(); return t != 0 && l.Left() > 0, t })
		for ctx.Err() == nil {
			if err := l.Lock(ctx); err != nil {
				elect.Sleep(ctx, m, time.Second)
				continue
			}
			m.begins(0, l.Token(), l.Fence())
			hold, cancel := context.WithTimeout(ctx, m.Random(5*time.Minute))
			select {
			case <-l.Lost():
			case <-hold.Done():
			}
			cancel()
			_ = l.Unlock(context.Background())
		}
	}},
	"group": {partitions, 3 * lease, func(ctx context.Context, m *machine) {
		g := group.New(nil, "locktable", "group", group.Numbered(partitions), m.options(),
			group.WithWork(func(ctx context.Context, p group.Partition) error {
				m.begins(int(p.Name()[0]-'0'), p.Token(), p.Fence())
				<-ctx.Done()
				return nil
			}))
		m.become(func(p int) (bool, spindle.Token) { return g.Has(fmt.Sprint(p)) })
		done := make(chan error, 1)
		if assert.NoError(m.t, g.Run(ctx, done)) {
			<-done
		}
	}},
}

// Three machines share an elector, a mutex or a group of partitions. Whatever Spanner does, no two of them hold the same
// lock by what they say themselves, tokens only grow, no write fenced with an older token commits, and each lock has a
// holder again soon after the last fault.
func TestAWeekOfFaults(t *testing.T) {
	seed := *flagSeed
	if seed == 0 {
		seed = rand.Uint64() >> 16
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			fleet.Bubble(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(context.Background())
				w := &week{t: t, ctx: ctx, table: memstore.NewLocking(&memstore.Store{}), soon: kind.soon, locks: make([]watched, kind.locks)}
				var lives sync.WaitGroup
				for i := range 3 {
					m := &machine{week: w, number: i, born: w.clock.Now(), chance: rand.New(rand.NewPCG(seed, uint64(i)))}
					m.rate = 1 + (m.chance.Float64()-0.5)/50*0.9 // off by at most 0.9%
					w.machines = append(w.machines, m)
				}
				for _, m := range w.machines {
					lives.Go(func() { m.lives(ctx, kind.live) })
				}
				w.run(rand.New(rand.NewPCG(seed, 3)))
				stop()
				lives.Wait()
				time.Sleep(time.Hour) // what hangs ends
				t.Logf("%s; to repeat the faults: -seed=%d -for=%v", w, seed, *flagFor)
			})
		})
	}
}

// week is the table, its faults, and what is known of each lock.
type week struct {
	t     *testing.T
	ctx   context.Context
	table *memstore.Locking
	clock elect.SystemClock
	soon  time.Duration

	mu           sync.Mutex
	machines     []*machine
	locks        []watched
	outage, slow time.Time // until then
	disturbed    time.Time // the end of the last fault
	looks        int
	down         int // looks in an outage
}

// watched is what is known of one lock.
type watched struct {
	newest       spindle.Token
	terms        int
	vacant       time.Time     // since when it has no holder
	held, heldUp int           // looks that found a holder, and those outside of outages
	longest      time.Duration // without a holder
	worst        time.Duration // from the last fault until it had a holder
}

// event is a fault, or a rolling update.
type event struct {
	at    time.Duration
	apply func(now time.Time)
}

// draw draws what happens, at random times. Each occurs a few times, however short the run is.
func (w *week) draw(chance *rand.Rand) (all []event) {
	some := func(aDay int, apply func(m *machine, now time.Time)) {
		for range max(3, int(float64(aDay)*flagFor.Hours()/24)) {
			all = append(all, event{time.Duration(chance.Int64N(int64(*flagFor))), func(now time.Time) { apply(w.machines[chance.IntN(3)], now) }})
		}
	}
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(chance.Int64N(int64(b-a))) }
	lasts := func(until *time.Time, now time.Time, d time.Duration) { *until = now.Add(d); w.disturb(*until) }
	some(1, func(_ *machine, now time.Time) { lasts(&w.outage, now, between(time.Minute, 10*time.Minute)) })
	some(6, func(_ *machine, now time.Time) { lasts(&w.slow, now, between(10*time.Second, 5*time.Minute)) })
	some(48, func(m *machine, now time.Time) { m.alone(&m.cut, now, between(time.Second, 2*time.Minute)) })
	some(12, func(m *machine, now time.Time) { m.alone(&m.sessionless, now, between(time.Second, 20*time.Second)) })
	some(24, func(m *machine, now time.Time) {
		m.wall.Wall.Add(int64(between(-time.Hour, time.Hour)))
		w.disturb(now)
	})
	some(1, func(_ *machine, now time.Time) { // an update restarts one machine after another
		for i, m := range w.machines {
			time.AfterFunc(time.Duration(i)*time.Minute, m.end)
		}
		w.disturb(now.Add(2*time.Minute + restart))
	})
	slices.SortFunc(all, func(a, b event) int { return int(a.at - b.at) })
	return all
}

func (w *week) run(chance *rand.Rand) {
	events, start := w.draw(chance), time.Now()
	for now := start; now.Sub(start) < *flagFor && !w.t.Failed(); now = time.Now() {
		w.mu.Lock()
		for len(events) > 0 && now.Sub(start) >= events[0].at {
			events[0].apply(now)
			events = events[1:]
		}
		w.see(now)
		w.mu.Unlock()
		time.Sleep(look)
	}
}

// see looks who holds each lock.
func (w *week) see(now time.Time) {
	w.looks++
	down := now.Before(w.outage)
	if down {
		w.down++
	}
	for i := range w.locks {
		l := &w.locks[i]
		if !w.apart(i) {
			if l.vacant.IsZero() {
				l.vacant = now
			}
			l.longest = max(l.longest, now.Sub(l.vacant))
			since := now.Sub(w.disturbed) // from the fault on, not from the end of the term that it ended
			if l.vacant.Sub(w.disturbed) > lease {
				since = now.Sub(l.vacant)
			}
			if l.worst = max(l.worst, since); since > w.soon {
				w.t.Errorf("lock %d has had no holder for %v since the last fault", i, since)
			}
			continue
		}
		l.vacant = time.Time{}
		l.held++
		if !down {
			l.heldUp++
		}
	}
}

// apart reports whether a lock has a holder, and fails the test if it has two. w.mu is held.
func (w *week) apart(lock int) bool {
	var holders []int
	for _, m := range w.machines {
		if m.has == nil {
			continue
		}
		if has, token := m.has(lock); has {
			holders = append(holders, m.number)
			assert.LessOrEqual(w.t, w.locks[lock].newest, token, "machine %d holds lock %d under an old token", m.number, lock)
		}
	}
	assert.LessOrEqual(w.t, len(holders), 1, "machines %v hold lock %d at the same time", holders, lock)
	return len(holders) > 0
}

// disturb notes that a fault lasts until then.
func (w *week) disturb(until time.Time) {
	if until.After(w.disturbed) {
		w.disturbed = until
	}
}

func (w *week) String() string {
	var held, heldUp, terms int
	var longest, worst time.Duration
	for _, l := range w.locks {
		held, heldUp, terms = held+l.held, heldUp+l.heldUp, terms+l.terms
		longest, worst = max(longest, l.longest), max(worst, l.worst)
	}
	n := float64(len(w.locks)) / 100
	return fmt.Sprintf("held for %.3f %% of the time, and for %.3f %% of the time outside of outages; %d terms; longest without a holder: %v; held again within %v of the last fault",
		float64(held)/n/float64(w.looks), float64(heldUp)/n/float64(w.looks-w.down), terms, longest, worst)
}
