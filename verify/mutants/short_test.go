//go:build mutants

package mutants

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// chances is how often a test can run until it catches a mutant. Some tests have to hit the mutant at a random time,
// which they miss in at most one of twenty runs.
const chances = 4

var flagOneOf = flag.Int("one-of", 1, "try one of this many of the mutants for short tests, drawn anew each time")

// TestShortMutants runs, for each mutant, the one test that must catch it, without an emulator. A mutant whose test
// does not exist is not caught. Some tests wait in virtual time, in vain, for what a mutant prevents: a run that takes
// most of a minute has caught it.
func TestShortMutants(t *testing.T) {
	t.Parallel()
	for i, m := range drawn() {
		t.Run(strings.Trim(m.pkg, "./")+"/"+m.name, func(t *testing.T) {
			t.Parallel()
			if out, err := short(t, m.pkg, len(mutants)+len(groupMutants)+i+1, chances, time.Minute, m.breaks); err == nil || !caught(out, m.breaks) {
				t.Fatalf("%s did not notice: %v\n%s", m.breaks, err, out)
			}
		})
	}
}

func caught(out, test string) bool {
	panics := strings.Contains(out, "panic: ") && !strings.Contains(out, "test timed out") // only this test runs
	return panics || strings.Contains(out, "--- FAIL: "+test) || regexp.MustCompile(`panic: test timed out after 1m0s\s+running tests:\s+`+test+`(/\S*)? \((5\ds|1m\ds)\)`).MatchString(out)
}

// TestNoShortMutant is the control: the same tests of the same build pass without a mutant.
func TestNoShortMutant(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{}
	for _, m := range drawn() {
		tests[m.pkg] = append(tests[m.pkg], m.breaks)
	}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			if out, err := short(t, pkg, 0, 1, 20*time.Minute, tests[pkg]...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// drawn returns the mutants to try, by their index in shortMutants.
var drawn = sync.OnceValue(func() map[int]shortMutant {
	some := map[int]shortMutant{}
	for i, m := range shortMutants() {
		if rand.N(*flagOneOf) == 0 {
			some[i] = m
		}
	}
	return some
})

func shortMutants() []shortMutant {
	return slices.Concat(electorMutants, lockMutants, semaphoreMutants, electMutants, tableMutants, rootMutants, groupShortMutants, onceMutants, leaksMutants, commandMutants,
		fenceMutants, groupFaultMutants, groupPlanMutants, groupMemberMutants, groupDecideMutants, freeMutants, fairMutants, notifyMutants, restMutants, notifiedMutants, agentMutants, secondMutants, stallMutants, freshMutants, rowMutants)
}

// short runs tests of a package several times without an emulator, until one fails or the time limit is reached.
func short(t *testing.T, pkg string, number, times int, limit time.Duration, tests ...string) (string, error) {
	t.Helper()
	return test(t, pkg, number, "-test.short", "-test.failfast", fmt.Sprintf("-test.count=%d", times), "-test.timeout="+limit.String(), "-test.run=^("+strings.Join(tests, "|")+")$")
}
