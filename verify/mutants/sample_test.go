//go:build mutants

package mutants

import (
	"cmp"
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

var (
	flagSample = flag.Int("sample", 0, "try this many fresh mutants")
	flagSeed   = flag.Uint64("mutation-seed", 1, "decides which")
)

// suite is a run of tests that can catch a generated mutant.
type suite struct {
	pkg   string
	tests string // of the simulation; "": all short tests of the package
}

// args make the simulation run the same seeds each time, as many as time permits.
func (k suite) args() []string {
	if k.tests == "" {
		return []string{"-test.short", "-test.failfast", "-test.timeout=5m"}
	}
	return []string{"-test.run=^" + k.tests + "$", "-test.v", "-test.timeout=5m", "-until=any", "-soak=15s"}
}

func (k suite) String() string { return cmp.Or(k.tests, k.pkg) }

var (
	locksSimulated  = suite{"./verify/simulation", "TestSimulation"}
	groupsSimulated = suite{"./verify/simulation", "TestGroups"}
)

// suites are the test runs that are tried with the mutants of a package, until one catches the mutant.
var suites = map[string][]suite{
	".":                   {{pkg: "."}, locksSimulated},
	"./group":             {{pkg: "./group"}, groupsSimulated},
	"./internal/elect":    {{pkg: "./internal/elect"}, locksSimulated, {pkg: "."}, {pkg: "./lock"}, groupsSimulated, {pkg: "./group"}},
	"./internal/fair":     {{pkg: "./internal/fair"}, {pkg: "./lock"}},
	"./internal/fence":    {{pkg: "./internal/fence"}, locksSimulated, {pkg: "."}, {pkg: "./lock"}},
	"./internal/plan":     {{pkg: "./internal/plan"}, {pkg: "./group"}, groupsSimulated},
	"./internal/notify":   {{pkg: "./internal/notify"}, {pkg: "./lock"}},
	"./internal/operator": {{pkg: "./internal/operator"}},
	"./internal/share":    {{pkg: "./internal/share"}, {pkg: "./group"}, groupsSimulated},
	"./internal/table":    {{pkg: "./internal/table"}, locksSimulated, {pkg: "./internal/elect"}, {pkg: "."}, groupsSimulated, {pkg: "./lock"}, {pkg: "./group"}},
	"./lock":              {{pkg: "./lock"}},
}

// TestSample tries mutants that were not chosen by hand: a sample, determined by the seed, of all changes that
// generate_test.go can make. A person has to examine each survivor, which is either equivalent, so that no test could
// distinguish it from the source, or shows that a test is missing. A survivor is therefore not a failure.
func TestSample(t *testing.T) {
	if *flagSample == 0 {
		t.Skip("it takes a minute for three mutants: ask for it with -sample 100 -timeout 0")
	}
	tree, err := treeOf(slices.Sorted(maps.Keys(suites)))
	if err != nil {
		t.Fatal(err)
	}
	sample, woven, err := tree.sample(*flagSample, *flagSeed)
	if err != nil {
		t.Fatal(err)
	}
	where := t.TempDir()
	if err := woven.compile(where, allSuites(func(k suite) string { return k.pkg })); err != nil {
		t.Fatal(err)
	}
	t.Log("built")
	if !t.Run("control", func(t *testing.T) { control(t, where) }) {
		t.Fatal("what fails with no mutant says nothing about mutants")
	}
	var mu sync.Mutex
	survivors := map[int]string{}
	t.Run("mutant", func(t *testing.T) {
		for i, c := range sample {
			t.Run(fmt.Sprint(i+1), func(t *testing.T) {
				t.Parallel()
				start, shown := time.Now(), c.String()+"\n"+woven[c.file].diff(c.splice)
				by := caughtBy(t, where, i+1, suites[c.pkg])
				t.Logf("%s after %v\n%s", cmp.Or(by, "SURVIVED"), time.Since(start).Round(time.Second), shown)
				if by == "" {
					mu.Lock()
					defer mu.Unlock()
					survivors[i+1] = shown
				}
			})
		}
	})
	for _, number := range slices.Sorted(maps.Keys(survivors)) {
		t.Logf("survivor %d: %s", number, survivors[number])
	}
	caught := len(sample) - len(survivors)
	t.Logf("seed %d: %d of %d caught (%d %%), with equivalent ones among the others", *flagSeed, caught, len(sample), 100*caught/len(sample))
}

// allSuites returns the suites of all packages, without duplicates.
func allSuites(what func(suite) string) (all []string) {
	for _, list := range suites {
		for _, k := range list {
			all = append(all, what(k))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// sample draws changes until enough of them compile.
func (t *tree) sample(size int, seed uint64) ([]change, files, error) {
	all, err := t.changes(slices.Sorted(maps.Keys(suites)))
	if err != nil {
		return nil, nil, err
	}
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var drawn []change
	for {
		more := min(size-len(drawn), len(all))
		drawn, all = append(drawn, all[:more]...), all[more:]
		woven := files{}
		for i, c := range drawn {
			f, err := woven.at(c.file)
			if err != nil {
				return nil, nil, err
			}
			if !f.replace(i+1, c.splice) {
				return nil, nil, fmt.Errorf("%s is in no function", c)
			}
		}
		broken, err := t.broken(woven)
		if err != nil {
			return nil, nil, err
		}
		if len(broken) == 0 {
			return drawn, woven, nil
		}
		var good []change
		for i, c := range drawn {
			if broken[i+1] == nil {
				good = append(good, c)
			}
		}
		drawn = good
	}
}

// control runs all suites without a mutant.
func control(t *testing.T, where string) {
	seen := map[suite]bool{}
	for _, pkg := range slices.Sorted(maps.Keys(suites)) {
		for _, k := range suites[pkg] {
			if seen[k] {
				continue
			}
			seen[k] = true
			if out, err := run(t, where, k.pkg, 0, k.args()...); err != nil {
				t.Errorf("%v: %v\n%s", k, err, out)
			}
		}
	}
}

// The texts in a test's output that show how it failed.
var failure = regexp.MustCompile(`--- FAIL: (Test\S+)|caught: (".*?" by seed \d+)|(panic: test timed out|panic: .*|fatal error: .*)`)

// caughtBy returns the test that fails with a mutant, or "".
func caughtBy(t *testing.T, where string, number int, suites []suite) string {
	for _, k := range suites {
		out, err := run(t, where, k.pkg, number, k.args()...)
		if err == nil {
			continue
		}
		how := append([]string{k.String()}, failure.FindStringSubmatch(out)[1:]...)
		return strings.TrimSpace(strings.Join(how, " "))
	}
	return ""
}

func (c change) String() string { return fmt.Sprintf("%s:%d: %s", c.file, c.line, c.kind) }

// diff shows the lines of a change.
func (f *file) diff(s splice) string {
	from := strings.LastIndex(f.source[:s.from], "\n") + 1
	to := s.to + strings.Index(f.source[s.to:], "\n")
	marked := func(sign, text string) string { return sign + strings.ReplaceAll(text, "\n", "\n"+sign) }
	return marked("-", f.source[from:to]) + "\n" + marked("+", f.source[from:s.from]+s.text+f.source[s.to:to])
}
