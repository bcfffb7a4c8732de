//go:build mutants

package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

const patience = "90s" // for the simulation of one mutant

// TestMutants builds the simulation with each mutant and runs it until the invariant is violated that the
// mutant must break. What fails otherwise (it does not compile, it panics, nothing is found) is a failure
// of the simulation.
func TestMutants(t *testing.T) {
	var mu sync.Mutex
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mutant\tcaught by\tseeds\tsimulated\twith the build")
	t.Run("all", func(t *testing.T) {
		for i, m := range slices.Concat(mutants, groupMutants) {
			name, test := m.name, "TestSimulation"
			if i >= len(mutants) {
				name, test = "group/"+m.name, "TestGroups"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				out, _ := simulate(t, test, m, m.breaks, patience)
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
	for _, test := range []string{"TestSimulation", "TestGroups"} {
		out, err := simulate(t, test, mutant{}, "none", "3s")
		if err != nil || !strings.Contains(out, "violated: []") {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

func simulate(t *testing.T, test string, m mutant, until, limit string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	binary, overlay := filepath.Join(dir, "simulation.test"), filepath.Join(dir, "overlay.json")
	write(t, overlay, overlayOf(t, m, dir))
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, "./simulation")
	build.Dir = root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	run := exec.Command(binary, "-test.run=^"+test+"$", "-test.v", "-until="+until, "-soak="+limit)
	run.Dir = dir
	out, err := run.CombinedOutput()
	return string(out), err
}

// overlayOf replaces the files that the mutant edits.
func overlayOf(t *testing.T, m mutant, dir string) []byte {
	t.Helper()
	replace := map[string]string{}
	for i, e := range m.edits {
		path := filepath.Join(root(t), e.file)
		now := path
		if earlier, edited := replace[path]; edited {
			now = earlier
		}
		source, err := os.ReadFile(now)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), e.old); n != 1 {
			t.Fatalf("the text to replace is in %s %d times, and should be there once: the source has changed, and so must this mutant:\n%s", e.file, n, e.old)
		}
		mutated := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		write(t, mutated, []byte(strings.Replace(string(source), e.old, e.new, 1)))
		replace[path] = mutated
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
