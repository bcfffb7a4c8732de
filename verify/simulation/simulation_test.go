package simulation

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	fleets "github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// The simulation runs fleets of candidates in virtual time, on a table in memory. The candidates are real Locks with the
// real steps of internal/table. The simulation injects faults into requests, replies, processes, clocks and rows. One seed
// determines everything, so a seed that fails can be replayed:
//
//	go test ./verify/simulation                        a quarter of the fixed seeds (-v prints what was simulated); all with SPINDLE_ALL_CASES=1
//	go test -v ./verify/simulation -run 'TestSimulation$' -seed=N      one seed, with its trace
//	go test -v ./verify/simulation -run 'TestSimulation$' -soak=10m -timeout=0    fresh seeds, as each night
//
// The same seed produces the same run. A seed does not determine the scheduler, so no decision may depend on it. Chance is
// a function of the seed, the process and the virtual instant, not of the order of calls. Delays are odd numbers of
// nanoseconds, so that no two events share an instant.
//
// Groups (-run 'TestGroups$') are the exception. A member's loop waits for its own RPCs, so several events can be pending
// when it continues, and a select chooses any of them. A run that fails prints its own trace; run its seed several times.

var (
	flagSeed  = flag.Uint64("seed", 0, "run this one seed of the simulation and print its trace")
	flagSoak  = flag.Duration("soak", 0, "run fresh seeds of the simulation for this long")
	flagUntil = flag.String("until", "", "run seeds from 1 on until this invariant is violated, or any, for -soak at most (for mutants)")
	flagFirst = flag.Uint64("first", 0, "with -until: run this seed before those from 1 on")
)

// suite is a kind of fleet to test.
type suite struct {
	test   string
	of     func(*world) fleet
	seeds  uint64   // that are always tried, from 1 on
	known  []uint64 // others that are always tried: they failed once
	traced bool     // each run: a seed need not take the same course again
}

var (
	locks = suite{test: "TestSimulation", of: func(w *world) fleet { return w }, seeds: 60,
		known: []uint64{
			1007001401514, 112690593433, // a mutex was held while a process was stopped at its clock
			127650477477, // the last fault left a term hardly any lease
			416116064904, // rows are deleted by hand, and a claim lands that was sent before they were inserted
		}}
	members = suite{test: "TestGroups", of: newGroups, seeds: 12, traced: true}
)

func TestSimulation(t *testing.T) {
	t.Parallel()
	locks.run(t)
}

func TestGroups(t *testing.T) {
	t.Parallel()
	members.run(t)
}

func (k suite) run(t *testing.T) {
	var total totals
	defer func(start time.Time) { t.Log(total.report(time.Since(start))) }(time.Now())
	switch {
	case *flagUntil != "":
		k.hunt(t, &total, *flagUntil)
	case *flagSeed != 0:
		w := k.simulate(t, *flagSeed, true)
		total.add(w)
		t.Log(w.history())
		k.report(t, w)
	case *flagSoak > 0:
		k.fresh(t, &total, *flagSoak)
	default:
		for _, seed := range fleets.Part(k.always()...) {
			if !t.Failed() {
				k.must(t, &total, seed)
			}
		}
	}
}

// always are the fixed seeds.
func (k suite) always() []uint64 {
	seeds := slices.Clone(k.known)
	for seed := range k.seeds {
		seeds = append(seeds, seed+1)
	}
	return seeds
}

func TestSimulationIsDeterministic(t *testing.T) {
	seeds := uint64(40)
	if fleets.Brief() {
		seeds = 10
	}
	for seed := range seeds {
		if first, second, repeats := fleets.Repeats(4, func() string { return locks.simulate(t, seed+1, true).history() }); !repeats {
			t.Fatalf("seed %d: each run differs from all others:\n%s", seed+1, difference(first, second))
		}
	}
}

// difference shows where two traces diverge.
func difference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			from := max(i-8, 0)
			return fmt.Sprintf("%s\nfirst:  %s\nsecond: %s", strings.Join(as[from:i], "\n"), as[i], bs[i])
		}
	}
	return fmt.Sprintf("one is longer: %d and %d lines", len(as), len(bs))
}

// fresh runs seeds that have not been run before.
func (k suite) fresh(t *testing.T, total *totals, length time.Duration) {
	base := rand.Uint64N(1 << 40)
	t.Logf("fresh seeds from %d on", base)
	for seed, start := base, time.Now(); time.Since(start) < length && !t.Failed(); seed++ {
		k.must(t, total, seed)
	}
}

// must runs a seed, and once more for its trace if it fails.
func (k suite) must(t *testing.T, total *totals, seed uint64) {
	w := k.simulate(t, seed, k.traced)
	total.add(w)
	if len(w.violations) == 0 {
		return
	}
	again := w
	if !k.traced {
		again = k.simulate(t, seed, true)
	}
	t.Log(again.history())
	k.report(t, w)
}

// hunt is the part of a mutant's test that runs in the simulation. It fails once the invariant is violated.
func (k suite) hunt(t *testing.T, total *totals, invariant string) {
	also := map[string]bool{}
	start := time.Now()
	const again = 8 // times for the first seed: in groups, a seed may take another course each time
	for i := uint64(1); i == 1 || time.Since(start) < *flagSoak; i++ {
		seed := i
		switch {
		case *flagFirst > 0 && i <= again:
			seed = *flagFirst
		case *flagFirst > 0:
			seed = i - again
		}
		w := k.simulate(t, seed, false)
		total.add(w)
		for _, v := range w.violations {
			also[v.invariant] = true
		}
		if also[invariant] || invariant == "any" && len(also) > 0 {
			t.Fatalf("caught: %q by seed %d after %v; violated: %q", invariant, seed, time.Since(start).Round(time.Millisecond), slices.Sorted(maps.Keys(also)))
		}
	}
	t.Logf("not caught: %q; violated: %q", invariant, slices.Sorted(maps.Keys(also)))
}

func (k suite) simulate(t *testing.T, seed uint64, tracing bool) *world {
	w := &world{seed: seed, tracing: tracing}
	w.fleet = k.of(w)
	stuck := time.AfterFunc(longest, func() {
		debug.SetTraceback("all")
		panic("virtual time stands still: a goroutine waits for a mutex whose owner sleeps, or never waits; " + k.replay(seed))
	})
	defer stuck.Stop()
	synctest.Test(t, func(*testing.T) { w.run() })
	return w
}

// longest is more real time than any run takes, even on a busy machine.
const longest = 5 * time.Minute

func (k suite) report(t *testing.T, w *world) {
	for _, v := range w.violations {
		t.Errorf("%s: %s", v.invariant, v.text)
	}
	if t.Failed() {
		t.Error(k.replay(w.seed))
	}
}

func (k suite) replay(seed uint64) string {
	return fmt.Sprintf("replay: go test -v ./verify/simulation -run '%s$' -seed=%d", k.test, seed)
}

// totals summarizes the simulated runs.
type totals struct {
	seeds, terms, moves, commits int
	gaps                         int     // handovers with nothing wrong
	widest                       float64 // the time without a holder in one of them, as a part of what is allowed
	time                         time.Duration
	faults                       map[string]int
}

func (s *totals) add(w *world) {
	if s.faults == nil {
		s.faults = map[string]int{}
	}
	s.seeds++
	s.terms += w.terms
	s.moves += w.moves
	s.commits += w.commits
	s.gaps += w.gaps
	s.widest = max(s.widest, w.widest)
	s.time += w.lasted
	for kind, n := range w.faults {
		s.faults[kind] += n
	}
}

func (s *totals) report(took time.Duration) string {
	var b strings.Builder
	all := 0
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		all += s.faults[kind]
		fmt.Fprintf(&b, "\n  %-24s %d", kind, s.faults[kind])
	}
	return fmt.Sprintf("simulated %.3f years in %v (%.1f h/s): %d seeds (%.0f/min), %d commits, %d terms, %d works on partitions, %d handovers with nothing wrong (at worst %.2f of the time that they may take), %d faults (%.1f per term):%s",
		s.time.Hours()/24/365, took.Round(time.Millisecond), s.time.Hours()/took.Seconds(), s.seeds, float64(s.seeds)/took.Minutes(),
		s.commits, s.terms, s.moves, s.gaps, s.widest, all, float64(all)/float64(max(s.terms, 1)), b.String())
}
