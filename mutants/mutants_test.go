//go:build mutants

package mutants

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

const patience = "90s" // for the simulation of one mutant

// TestMutants runs the simulation with each mutant until the invariant is violated that the mutant must break.
// What fails otherwise (it panics, nothing is found) is a failure of the simulation.
func TestMutants(t *testing.T) {
	var mu sync.Mutex
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mutant\tcaught by\tseeds\tsimulated\tthe whole run")
	t.Run("all", func(t *testing.T) {
		for i, m := range slices.Concat(mutants, groupMutants) {
			name, trial := m.name, "TestSimulation"
			if i >= len(mutants) {
				name, trial = "group/"+m.name, "TestGroups"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				out, _ := simulate(t, trial, i+1, m.breaks, patience)
				caught := regexp.MustCompile(`caught: "(.*?)" by seed (\d+) after (\S+);`).FindStringSubmatch(out)
				if caught == nil || strings.Contains(out, "panic:") {
					t.Fatalf("the simulation did not find that %q is broken:\n%s", m.breaks, out)
				}
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\n", name, caught[1], caught[2], caught[3], time.Since(start).Round(100*time.Millisecond))
			})
		}
	})
	w.Flush()
	t.Logf("\n%s", table.String())
}

// TestNoMutant is the control: the same build with nothing replaced breaks no invariant.
func TestNoMutant(t *testing.T) {
	for _, trial := range []string{"TestSimulation", "TestGroups"} {
		out, err := simulate(t, trial, 0, "none", "3s")
		if err != nil || !strings.Contains(out, "violated: []") {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// simulate runs the simulation until an invariant is violated.
func simulate(t *testing.T, trial string, number int, until, limit string) (string, error) {
	t.Helper()
	return test(t, "./simulation", number, "-test.run=^"+trial+"$", "-test.v", "-until="+until, "-soak="+limit)
}
