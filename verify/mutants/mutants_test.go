//go:build mutants

package mutants

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const patience = "10m" // for the simulation of one mutant; only one that is not caught takes so long

// early lists seeds that catch mutants which few seeds catch. Each is tried before the seeds from 1 on. If the code has
// changed since, so that the seed has no special effect any more, the other seeds still have all the time that they
// would have had.
var early = map[string]uint64{
	"orphanLeases of a later instant than the absence": 342,
	"no allowance for the rate of the clock":           354,
	"deadline counted from the reply":                  46,
	"term revived after its end":                       156,
	"holder that was seen forgotten with its rows":     41,
	"claim over orphanLeases that nobody waited for":   66,
	"group/two reads for one snapshot":                 12,
	"group/what the table shows as the own is adopted": 15,
}

// TestMutants runs the simulation with each mutant until it violates the invariant that it must break. If the run fails
// in a different way (a panic, or no violation), the simulation is at fault.
func TestMutants(t *testing.T) {
	t.Parallel()
	unknown := maps.Clone(early)
	t.Run("all", func(t *testing.T) {
		for i, m := range slices.Concat(mutants, groupMutants) {
			name, suite := m.name, "TestSimulation"
			if i >= len(mutants) {
				name, suite = "group/"+m.name, "TestGroups"
			}
			delete(unknown, name)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				out, _ := simulate(t, suite, i+1, m.breaks, patience, early[name])
				caught := regexp.MustCompile(`caught: "(.*?)" by seed (\d+) after (\S+);`).FindStringSubmatch(out)
				if caught == nil || strings.Contains(out, "panic:") {
					t.Fatalf("the simulation did not find that %q is broken:\n%s", m.breaks, out)
				}
				t.Logf("caught by %q, seed %s, after %s", caught[1], caught[2], caught[3])
			})
		}
	})
	if len(unknown) > 0 {
		t.Errorf("there are no mutants of these names: %v", unknown)
	}
}

// TestNoMutant is the control: the same build without a mutant breaks no invariant, with the first seeds and with the
// early ones.
func TestNoMutant(t *testing.T) {
	t.Parallel()
	control := func(suite, limit string, first uint64) {
		out, err := simulate(t, suite, 0, "none", limit, first)
		if err != nil || !strings.Contains(out, "violated: []") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	control("TestSimulation", "3s", 0)
	control("TestGroups", "3s", 0)
	for name, seed := range early {
		suite := "TestSimulation"
		if strings.HasPrefix(name, "group/") {
			suite = "TestGroups"
		}
		control(suite, "1ms", seed)
	}
}

// simulate runs the simulation until an invariant is violated. If the seed is not 0, that seed comes first.
func simulate(t *testing.T, suite string, number int, until, limit string, first uint64) (string, error) {
	t.Helper()
	return test(t, "./verify/simulation", number, "-test.run=^"+suite+"$", "-test.v", "-until="+until, "-soak="+limit, fmt.Sprintf("-first=%d", first))
}
