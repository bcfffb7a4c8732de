package spindle

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The simulation runs fleets of candidates, which are real Locks with the real steps of internal/table,
// on a table in memory and in virtual time, and breaks what can break around them: requests, replies,
// processes, clocks, rows. One seed decides everything, so a seed that fails can be run again:
//
//	go test -short .                            fixed seeds, a few seconds (-v prints what was simulated)
//	go test .                                   and fresh ones, for most of a minute
//	go test -v -run 'TestSimulation$' -sim.seed=N .      one seed, with its trace
//	go test -v -run 'TestSimulation$' -sim.soak=10m -timeout=0 .
//
// The parts: simulation_dice_test.go (chance), simulation_plan_test.go (what a seed's fleet is like),
// simulation_world_test.go (the run, and the faults that a driver injects), simulation_process_test.go
// (a process, its clock, its leader function), simulation_link_test.go (its way to the table) and
// simulation_check_test.go (the invariants). The mutants in mutants show that it finds what it should.
//
// The same seed gives the same run. The scheduler is no part of a seed, so nothing may depend on it:
// chance is a function of the seed, the process and the virtual instant (not of who asks first), and
// delays are odd nanoseconds, so that no two events share an instant.

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run this one seed of the simulation and print its trace")
	simSoak  = flag.Duration("sim.soak", 0, "run fresh seeds of the simulation for this long")
	simUntil = flag.String("sim.until", "", "run seeds from 1 until this invariant is violated, for -sim.soak at most (for mutants)")
)

const (
	simFixedSeeds = 60
	simFreshFor   = 45 * time.Second
)

func TestSimulation(t *testing.T) {
	var total simTotals
	defer func(start time.Time) { t.Log(total.report(time.Since(start))) }(time.Now())
	switch {
	case *simUntil != "":
		simHunt(t, &total, *simUntil)
	case *simSeed != 0:
		w := simRun(t, *simSeed, true)
		total.add(w)
		t.Log(w.history())
		w.report(t)
	case *simSoak > 0:
		simFresh(t, &total, *simSoak)
	default:
		for seed := uint64(1); seed <= simFixedSeeds && !t.Failed(); seed++ {
			simMust(t, &total, seed)
		}
		if !testing.Short() {
			simFresh(t, &total, simFreshFor)
		}
	}
}

func TestSimulationIsDeterministic(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		first, second := simRun(t, seed+1, true).history(), simRun(t, seed+1, true).history()
		if first != second {
			t.Fatalf("seed %d took two courses:\n%s", seed+1, simDifference(first, second))
		}
	}
}

// simDifference shows where two traces part.
func simDifference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			from := max(i-8, 0)
			return fmt.Sprintf("%s\nfirst:  %s\nsecond: %s", strings.Join(as[from:i], "\n"), as[i], bs[i])
		}
	}
	return fmt.Sprintf("one is longer: %d and %d lines", len(as), len(bs))
}

// simFresh runs seeds that nobody has run before.
func simFresh(t *testing.T, total *simTotals, length time.Duration) {
	base := rand.Uint64N(1 << 40)
	t.Logf("fresh seeds from %d on", base)
	for seed, start := base, time.Now(); time.Since(start) < length && !t.Failed(); seed++ {
		simMust(t, total, seed)
	}
}

// simMust runs a seed, and once more for its trace if it fails.
func simMust(t *testing.T, total *simTotals, seed uint64) {
	w := simRun(t, seed, false)
	total.add(w)
	if len(w.violations) == 0 {
		return
	}
	again := simRun(t, seed, true)
	t.Log(again.history())
	w.report(t)
}

// simHunt is the simulation's part in testing a mutant: it fails once the invariant is violated.
func simHunt(t *testing.T, total *simTotals, invariant string) {
	also := map[string]bool{}
	for seed, start := uint64(1), time.Now(); time.Since(start) < *simSoak; seed++ {
		w := simRun(t, seed, false)
		total.add(w)
		for _, v := range w.violations {
			also[v.invariant] = true
		}
		if also[invariant] {
			t.Fatalf("caught: %q by seed %d after %v; violated: %q", invariant, seed, time.Since(start).Round(time.Millisecond), slices.Sorted(maps.Keys(also)))
		}
	}
	t.Logf("not caught: %q; violated: %q", invariant, slices.Sorted(maps.Keys(also)))
}

func simRun(t *testing.T, seed uint64, tracing bool) *simWorld {
	w := &simWorld{seed: seed, tracing: tracing}
	synctest.Test(t, func(*testing.T) { w.run() })
	return w
}

func (w *simWorld) report(t *testing.T) {
	for _, v := range w.violations {
		t.Errorf("%s: %s", v.invariant, v.text)
	}
	if t.Failed() {
		t.Errorf("replay: go test -v -run 'TestSimulation$' -sim.seed=%d .", w.seed)
	}
}

// simTotals is what was simulated.
type simTotals struct {
	seeds, terms, commits int
	time                  time.Duration
	faults                map[string]int
}

func (s *simTotals) add(w *simWorld) {
	if s.faults == nil {
		s.faults = map[string]int{}
	}
	s.seeds++
	s.terms += w.terms
	s.commits += w.commits
	s.time += w.lasted
	for kind, n := range w.faults {
		s.faults[kind] += n
	}
}

func (s *simTotals) report(took time.Duration) string {
	var b strings.Builder
	all := 0
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		all += s.faults[kind]
		fmt.Fprintf(&b, "\n  %-24s %d", kind, s.faults[kind])
	}
	return fmt.Sprintf("simulated %.3f years in %v (%.1f h/s): %d seeds (%.0f/min), %d commits, %d terms, %d faults (%.1f per term):%s",
		s.time.Hours()/24/365, took.Round(time.Millisecond), s.time.Hours()/took.Seconds(), s.seeds, float64(s.seeds)/took.Minutes(),
		s.commits, s.terms, all, float64(all)/float64(max(s.terms, 1)), b.String())
}
