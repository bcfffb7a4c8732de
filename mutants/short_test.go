//go:build mutants

package mutants

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestShortMutants runs with each mutant, without an emulator, the one test that must catch it. A mutant whose test is
// not there is not caught.
func TestShortMutants(t *testing.T) {
	for i, m := range shortMutants() {
		t.Run(strings.Trim(m.pkg, "./")+"/"+m.name, func(t *testing.T) {
			t.Parallel()
			if out, err := short(t, m.pkg, len(mutants)+len(groupMutants)+i+1, m.breaks); err == nil || !strings.Contains(out, "--- FAIL: "+m.breaks) {
				t.Fatalf("%s did not notice: %v\n%s", m.breaks, err, out)
			}
		})
	}
}

// TestNoShortMutant is the control: the same tests of the same build pass with nothing replaced.
func TestNoShortMutant(t *testing.T) {
	tests := map[string][]string{}
	for _, m := range shortMutants() {
		tests[m.pkg] = append(tests[m.pkg], m.breaks)
	}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		if out, err := short(t, pkg, 0, tests[pkg]...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

func shortMutants() []shortMutant {
	return slices.Concat(lockMutants, electMutants, tableMutants, rootMutants, groupShortMutants)
}

// short runs tests of a package without an emulator.
func short(t *testing.T, pkg string, number int, tests ...string) (string, error) {
	t.Helper()
	return test(t, pkg, number, "-test.short", "-test.failfast", "-test.timeout=1m", "-test.run=^("+strings.Join(tests, "|")+")$")
}
