package agent

import (
	"flag"
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
	var seeds []uint64
	for seed := range uint64(alwaysSeeds) {
		seeds = append(seeds, seed+1)
	}
	seeds = fleet.Part(seeds...)
	next := func(i int) (seed uint64, more bool) { return seeds[min(i, len(seeds)-1)], i < len(seeds) }
	start, base := time.Now(), rand.Uint64N(1<<40)
	switch {
	case *flagSeed != 0:
		next = func(i int) (uint64, bool) { return *flagSeed, i == 0 }
	case *flagSoak > 0:
		next = func(i int) (uint64, bool) { return base + uint64(i), time.Since(start) < *flagSoak }
	}
	counts := map[string]int{}
	for seed, more := next(0); more && !t.Failed(); seed, more = next(counts["seeds"]) {
		w := &world{seed: seed, counts: counts}
		synctest.Test(t, func(*testing.T) { w.run() })
		counts["seeds"]++
		if len(w.violations) > 0 || *flagSeed != 0 {
			t.Log(strings.Join(w.trace, "\n"))
		}
		for _, v := range w.violations {
			t.Errorf("%s: %s; replay: go test ./cmd/spindle/internal/agent -run 'TestSimulation$' -v -seed=%d", v.invariant, v.text, seed)
		}
	}
	t.Logf("simulated in %v:", time.Since(start).Round(time.Millisecond))
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%-40s %d", what, counts[what])
	}
}
