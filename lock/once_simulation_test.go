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

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// This file runs the ticks of a schedule on machines whose clocks are minutes apart. The jobs take milliseconds, the
// requests go over the wires of the simulation, and the processes crash at any instant.

const simTick = 30 * time.Second

// schedule compares the table with the jobs.
type schedule struct {
	t     *testing.T
	store *memstore.Store

	mu       sync.Mutex
	last     string // what was recorded last
	done     map[string]bool
	recorded int
	runs     int
}

// committed checks that the recorded keys only grow, and that no key is recorded by two runs.
func (s *schedule) committed(_ string, _ time.Time, before, after map[string]table.Row) {
	was, is := before["nightly!done"], after["nightly!done"]
	if was == is {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d, _, err := table.Table{Store: rows{is}}.Done(context.Background(), table.Strong, "nightly")
	switch {
	case err != nil:
		s.t.Errorf("recorded: %v", err)
	case d.Key < s.last:
		s.t.Errorf("%s was recorded after %s", d.Key, s.last)
	case d.Key == s.last && is.Token != was.Token:
		s.t.Errorf("%s was recorded by two runs", d.Key)
	case d.Key > s.last:
		s.last, s.done[d.Key] = d.Key, true
		s.recorded++
	}
}

// rows is a table.Store that can only be read.
type rows []table.Row

func (r rows) Read(context.Context, string, table.Bound, table.Keys) ([]table.Row, time.Time, error) {
	return r, time.Now(), nil
}
func (rows) Commit(context.Context, string, []table.Write) error { panic("a commit") }
func (rows) Transact(context.Context, string, func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	panic("a transaction")
}

// begin checks that the key of a run has not been recorded before.
func (s *schedule) begin(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	if key <= s.last {
		s.t.Errorf("%s was run again, after %s", key, s.last)
	}
}

// told checks the result of Do. A key that is reported as done was recorded, a key that is reported as passed was not
// run by this call, and fn ran only if Do says so. began is the key that was run. If it is "", the key is that of a
// time between asked and now.
func (s *schedule) told(asked time.Time, began string, ran bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, last := keyAt(Tick(simTick), asked), keyAt(Tick(simTick), time.Now())
	if began != "" {
		first, last = began, began
	}
	if err == nil && !s.done[first] && !s.done[last] {
		s.t.Errorf("%s is told to be done, and was never recorded: what is recorded is %s", first, s.last)
	}
	if errors.Is(err, ErrPassed) && (ran || first >= s.last) {
		s.t.Errorf("%s is told to be passed by a larger key, and what is recorded is %s", first, s.last)
	}
	if ran != (began != "") {
		s.t.Errorf("%s: ran is %v, and %q began", first, ran, began)
	}
}

// skewed is a machine's clock that is wrong.
type skewed struct {
	simClock
	off time.Duration
}

func (c skewed) Now() elect.Instant {
	i := c.simClock.Now()
	i.Wall += int64(c.off)
	return i
}

// life is one process of a machine. Whenever the machine's clock says that a key is due, the process runs it, until it
// crashes.
func (s *schedule) life(seed, of uint64, off time.Duration, faults *atomic.Bool, until time.Time) {
	d := newDice(seed, of)
	w := &wire{dice: newDice(seed, of|1<<33), store: s.store, faults: faults}
	o := NewOnce(nil, "locktable", "nightly", silent, spindle.WithLease(simLease), options.Option(func(c *options.Config) {
		c.Store, c.Clock, c.Process = w, skewed{simClock{seed: seed, of: of | 1<<34}, off}, fmt.Sprint("life ", of)
	}))
	for time.Now().Before(until) && !w.dead.Load() {
		local := time.Now().Add(off)
		time.Sleep(local.Truncate(simTick).Add(simTick).Sub(local))
		ctx, cancel := context.WithTimeout(context.Background(), simTick)
		do := o.Do
		if d.one(3) {
			do = o.TryDo
		}
		asked, began := time.Now(), ""
		ran, err := do(ctx, Tick(simTick), func(ctx context.Context, r Run) error {
			began = r.Key()
			s.begin(began)
			return s.job(ctx, d, w, r)
		})
		cancel()
		s.told(asked, began, ran, err)
	}
}

func (s *schedule) job(ctx context.Context, d *dice, w *wire, r Run) error {
	time.Sleep(d.upTo(20 * time.Millisecond))
	if d.one(10) {
		time.Sleep(d.upTo(3 * simLease)) // whatever becomes of ctx
	}
	if !w.faults.Load() {
		return nil
	}
	if d.one(4) {
		if err := w.Commit(ctx, "work", table.Record("nightly", table.Token(r.Token()), table.Due{Key: r.Key(), Period: simTick}, "")); err != nil {
			return err
		}
	}
	switch {
	case d.one(8):
		return errors.New("failed")
	case d.one(8):
		w.dead.Store(true)
	}
	return nil
}

func TestEachTickIsDoneOnceHoweverWrongTheClocksAre(t *testing.T) {
	const ticks, calm = 500, 5
	seeds := []uint64{1, 2, 3, 4, rand.Uint64(), rand.Uint64()}
	if *simSeed != 0 {
		seeds = []uint64{*simSeed}
	}
	for _, seed := range fleet.Part(seeds...) {
		t.Logf("again: go test -run TestEachTick ./lock -lock.seed=%d", seed)
		fleet.Bubble(t, func(t *testing.T) {
			s := &schedule{t: t, store: &memstore.Store{}, done: map[string]bool{}}
			s.store.OnCommit = s.committed
			var faults atomic.Bool
			faults.Store(true)
			start := time.Now()
			end := start.Add(ticks * simTick)
			var all sync.WaitGroup
			for m := range uint64(4) {
				off := newDice(seed, m|1<<40).upTo(10*time.Minute) - 5*time.Minute
				if m > 0 {
					off = off.Truncate(simTick) // these are minutes off, and all come at the same instant
				}
				all.Go(func() {
					for n := uint64(0); time.Now().Before(end); n++ {
						s.life(seed, m<<16|n, off, &faults, end)
					}
				})
			}
			time.Sleep(time.Until(end.Add(-calm * simTick)))
			faults.Store(false)
			time.Sleep(simTick)
			s.mu.Lock()
			before := s.recorded
			s.mu.Unlock()
			all.Wait()
			s.mu.Lock()
			t.Logf("%d ticks: %d runs, %d done", ticks, s.runs, s.recorded)
			assert.GreaterOrEqual(t, s.recorded-before, calm-1, "ticks are skipped though nothing fails")
			assert.Greater(t, s.recorded, ticks/2, "ticks are skipped")
			assert.LessOrEqual(t, s.recorded, ticks+1, "more than there were")
			assert.Greater(t, s.runs, s.recorded, "nothing was ever run again: the faults are too few to show anything")
			assert.Less(t, s.runs, 2*s.recorded, "more is run again than not")
			s.mu.Unlock()
			time.Sleep(time.Hour) // whatever hangs ends with its time-out
		})
	}
}
