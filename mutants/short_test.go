//go:build mutants

package mutants

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestShortMutants builds the tests of a package with each mutant and runs, without an emulator, the one that
// must catch it. A mutant that does not compile, or whose test is not there, is not caught.
func TestShortMutants(t *testing.T) {
	for _, m := range shortMutants() {
		t.Run(strings.Trim(m.pkg, "./")+"/"+m.name, func(t *testing.T) {
			t.Parallel()
			if out, err := short(t, m.pkg, m.mutant, "^"+m.breaks+"$"); err == nil || !strings.Contains(out, "--- FAIL: "+m.breaks) {
				t.Fatalf("%s did not notice: %v\n%s", m.breaks, err, out)
			}
		})
	}
}

// TestEveryMutantHasItsPlace applies all edits and builds nothing, for those who change the code.
func TestEveryMutantHasItsPlace(t *testing.T) {
	for _, m := range slices.Concat(mutants, groupMutants) {
		overlayOf(t, m, t.TempDir())
	}
	for _, m := range shortMutants() {
		overlayOf(t, m.mutant, t.TempDir())
	}
}

func shortMutants() []shortMutant {
	return slices.Concat(lockMutants, electMutants, tableMutants, rootMutants, groupShortMutants)
}

// short runs the tests of a package that need no emulator.
func short(t *testing.T, pkg string, m mutant, tests string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	binary, overlay := filepath.Join(dir, "short.test"), filepath.Join(dir, "overlay.json")
	write(t, overlay, overlayOf(t, m, dir))
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, pkg)
	build.Dir = root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	run := exec.Command(binary, "-test.short", "-test.failfast", "-test.timeout=1m", "-test.run="+tests)
	run.Dir = filepath.Join(root(t), pkg)
	out, err := run.CombinedOutput()
	return string(out), err
}
