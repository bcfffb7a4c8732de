package agent

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

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// The simulation runs agents and programs on two or three hosts, in virtual time. The agents are real, with their HTTP
// servers and the locks of package lock. Three things are replaced: time, the lock table, and what the kernel knows of
// processes and sockets. Most random choices come from the seed, but the order of events at one instant may differ
// between two runs, so run a seed that fails several times:
//
//	go test ./cmd/spindle/internal/agent -run 'TestSimulation$' -v -seed=N
//	go test ./cmd/spindle/internal/agent -run 'TestSimulation$' -v -soak=10m -timeout=0
//
//   - sim_plan_test.go: derives hosts, programs and faults from a seed
//   - sim_world_test.go: performs the run, and injects faults
//   - sim_host_test.go: a host, its clocks, and the process of its agent
//   - sim_link_test.go: the connection between an agent and the lock table
//   - sim_socket_test.go: sockets and processes as the kernel knows them
//   - sim_program_test.go: a program, which follows docs/agent.md
//   - sim_flood_test.go: a program that floods its agent
//   - sim_check_test.go: the invariants

var (
	flagSeed = flag.Uint64("seed", 0, "run this one seed of the simulation and print its trace")
	flagSoak = flag.Duration("soak", 0, "run fresh seeds of the simulation for this long")
)

// alwaysSeeds is how many seeds every run tries, from 1 on.
const alwaysSeeds = 20

// No two programs act under one lock at the same time, whatever happens to programs, agents, hosts and the network. When
// a program ends, its lock is free at once. After the last fault, every program gets its turn.
func TestSimulation(t *testing.T) {
	var total totals
	defer func(start time.Time) { t.Log(total.report(time.Since(start))) }(time.Now())
	switch {
	case *flagSeed != 0:
		w := simulate(t, *flagSeed)
		total.add(w)
		t.Log(strings.Join(w.trace, "\n"))
		report(t, w, false)
	case *flagSoak > 0:
		base := rand.Uint64N(1 << 40)
		for seed, start := base, time.Now(); time.Since(start) < *flagSoak && !t.Failed(); seed++ {
			total.must(t, seed)
		}
	default:
		var seeds []uint64
		for seed := range uint64(alwaysSeeds) {
			seeds = append(seeds, seed+1)
		}
		for _, seed := range fleet.Part(seeds...) {
			if !t.Failed() {
				total.must(t, seed)
			}
		}
	}
}

func simulate(t *testing.T, seed uint64) *world {
	w := &world{seed: seed}
	synctest.Test(t, func(*testing.T) { w.run() })
	return w
}

func report(t *testing.T, w *world, trace bool) {
	if len(w.violations) == 0 {
		return
	}
	if trace {
		t.Log(strings.Join(w.trace, "\n"))
	}
	for _, v := range w.violations {
		t.Errorf("%s: %s", v.invariant, v.text)
	}
	t.Errorf("replay: go test ./cmd/spindle/internal/agent -run 'TestSimulation$' -v -seed=%d", w.seed)
}

// totals summarizes the simulated runs.
type totals struct {
	seeds, terms, freed, fenced int
	time                        time.Duration
	faults                      map[string]int
}

func (s *totals) must(t *testing.T, seed uint64) {
	w := simulate(t, seed)
	s.add(w)
	report(t, w, true)
}

func (s *totals) add(w *world) {
	if s.faults == nil {
		s.faults = map[string]int{}
	}
	s.seeds++
	s.terms += w.terms
	s.freed += w.freed
	s.fenced += w.fenced
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
		fmt.Fprintf(&b, "\n  %-40s %d", kind, s.faults[kind])
	}
	return fmt.Sprintf("simulated %v in %v: %d seeds, %d terms, %d locks of ended programs that had to be free at once, %d fenced writes, %d faults:%s",
		s.time.Round(time.Second), took.Round(time.Millisecond), s.seeds, s.terms, s.freed, s.fenced, all, b.String())
}
