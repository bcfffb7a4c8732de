//go:build mutants

package mutants

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// All mutants are built together, because linking each of them with the Spanner client would take longer than running all
// their tests. A function that mutants edit exists once as in the source, and once more for each mutant. An environment
// variable of the process selects the one to call, for the lifetime of the process:
//
//	func (t *Term) Left() time.Duration {
//		switch mutantOf_term {
//		case "17":
//			return t.Left_17()
//		default:
//			return t.Left_0()
//		}
//	}
const running = "SPINDLE_MUTANT" // number of a mutant, from 1 on

var packages = []string{".", "./internal/batch", "./internal/calendar", "./cmd/spindle/internal/agent", "./cmd/spindle/internal/child", "./cmd/spindle/internal/health",
	"./cmd/spindle/internal/operate", "./cmd/spindle/internal/peer", "./cmd/spindle/internal/run", "./cmd/spindle/internal/serve", "./cmd/spindle/internal/terminal",
	"./cmd/spindle/internal/cli", "./cmd/spindle/internal/database", "./cmd/spindle/internal/model", "./cmd/spindle/internal/view",
	"./doctor", "./group", "./internal/elect", "./internal/fair", "./internal/fence", "./internal/loop", "./internal/notify", "./internal/operator", "./internal/plan", "./internal/share", "./internal/table", "./internal/telemetry", "./internal/wait", "./lock", "./verify/simulation"}

// all contains the mutants of all lists. The number of a mutant is its position here, starting from 1.
func all() []mutant {
	list := slices.Concat(mutants, groupMutants)
	for _, m := range shortMutants() {
		list = append(list, m.mutant)
	}
	return list
}

// TestEveryMutantHasItsPlace applies all edits without building anything, so it is fast enough to run after each
// change.
func TestEveryMutantHasItsPlace(t *testing.T) {
	files, err := weave(all())
	if err == nil {
		_, err = files.overlay(t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A mutant whose test is gone is noticed by nobody, which would be seen only when it is drawn.
func TestEveryTestOfAShortMutantExists(t *testing.T) {
	tests := map[string]string{} // the tests of each package
	for _, m := range shortMutants() {
		if tests[m.pkg] == "" {
			files, err := filepath.Glob(filepath.Join("../..", m.pkg, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				tests[m.pkg] += string(source)
			}
		}
		if !strings.Contains(tests[m.pkg], "func "+m.breaks+"(") {
			t.Errorf("mutant %q: %s has no test %s: name the one that defends the same now", m.name, m.pkg, m.breaks)
		}
	}
}

// TestEveryMutantCompiles checks the types, without linking. Mutants of tests are only checked by the build.
func TestEveryMutantCompiles(t *testing.T) {
	t.Parallel()
	woven, err := weave(all())
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]bool{}
	for path := range woven {
		if !strings.HasSuffix(path, "_test.go") {
			changed["./"+filepath.ToSlash(filepath.Dir(path))] = true
		}
	}
	tree, err := treeOf(slices.Sorted(maps.Keys(changed)))
	if err != nil {
		t.Fatal(err)
	}
	broken, err := tree.broken(woven)
	if err != nil {
		t.Fatal(err)
	}
	for number, err := range broken {
		t.Errorf("mutant %q: %v", all()[number-1].name, err)
	}
}

var dir string // of all that is built

func TestMain(m *testing.M) {
	flag.Parse()
	// Two more than the number of cores, because some tests wait for real time, unless -parallel is set.
	if atATime := flag.Lookup("test.parallel"); atATime.Value.String() == atATime.DefValue {
		_ = atATime.Value.Set(strconv.Itoa(runtime.GOMAXPROCS(0) + 2))
	}
	var err error
	if dir, err = os.MkdirTemp("", "mutants"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build compiles, on the first call, the tests of packages with all mutants in them.
var build = sync.OnceValue(func() error {
	files, err := weave(all())
	if err != nil {
		return err
	}
	return files.compile(dir, packages)
})

// test runs tests of a package with a mutant, or with none if the number is 0.
func test(t *testing.T, pkg string, number int, args ...string) (string, error) {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return run(t, dir, pkg, number, args...)
}

// run is like test, for a binary compiled in dir. A run uses one core, because other runs are in progress at the same
// time. With two cores, its threads would mostly wait for each other. One core and less garbage collection reduce the
// CPU time by a quarter.
func run(t *testing.T, dir, pkg string, number int, args ...string) (string, error) {
	t.Helper()
	source, err := filepath.Abs(filepath.Join("..", "..", pkg))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(source)
	if pkg == "." {
		name = "spindle"
	}
	limited := []string{"-c", `ulimit -v 8000000; exec "$@"`, "sh", filepath.Join(dir, name+".test")} // a mutant may allocate without an end
	run := exec.Command("sh", append(limited, args...)...)
	run.Dir = source
	run.WaitDelay = 5 * time.Second // what a mutant leaves behind may have its output for ever
	run.Env = append(os.Environ(), fmt.Sprintf("%s=%d", running, number), "GOMAXPROCS=1", "GOGC=400")
	if number > 0 { // the case that catches a mutant has to be among those that run
		run.Env = append(run.Env, "SPINDLE_ALL_CASES=1")
	}
	var out head
	run.Stdout, run.Stderr = &out, &out
	err = run.Run()
	return out.String(), err
}

// head keeps the beginning of its input, because a mutant might write without end.
type head struct{ strings.Builder }

func (h *head) Write(p []byte) (int, error) {
	if h.Len() < 4<<20 {
		h.Builder.Write(p)
	}
	return len(p), nil
}

// files returns the files that mutants edit, by path.
type files map[string]*file

// weave reports every mutant that has no place, because one change of the code can affect the places of several.
func weave(mutants []mutant) (all files, err error) {
	all = files{}
	for i, m := range mutants {
		for _, e := range m.edits {
			f, failed := all.at(e.file)
			if failed == nil {
				failed = f.plan(i+1, e)
			}
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("mutant %q: %w", m.name, failed))
			}
		}
	}
	return all, err
}

// sources returns the files with all mutants in them, and the additional files, by absolute path.
func (all files) sources() (map[string]string, error) {
	sources := map[string]string{}
	for path, f := range all {
		absolute, err := filepath.Abs(filepath.Join("..", "..", path))
		if err != nil {
			return nil, err
		}
		sources[absolute] = f.woven()
		sources[filepath.Join(filepath.Dir(absolute), "mutant_of_"+filepath.Base(absolute))] = f.which()
	}
	return sources, nil
}

// overlay writes the sources, and returns the file that lists them for the go command.
func (all files) overlay(dir string) (string, error) {
	sources, err := all.sources()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for i, at := range slices.Sorted(maps.Keys(sources)) {
		replace[at] = filepath.Join(dir, fmt.Sprintf("%d_%s", i, filepath.Base(at)))
		if err := os.WriteFile(replace[at], []byte(sources[at]), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// compile builds the tests of packages.
func (all files) compile(dir string, packages []string) error {
	overlay, err := all.overlay(dir)
	if err != nil {
		return err
	}
	compile := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", dir+"/")
	compile.Args = append(compile.Args, packages...)
	compile.Dir = "../.."
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("a mutant does not compile: %w\n%s", err, out)
	}
	return nil
}

// file is a file that mutants edit.
type file struct {
	path   string
	source string
	pkg    string
	base   int // of positions
	funcs  []*ast.FuncDecl
	here   map[*ast.FuncDecl]map[int][]splice // by number
	others []edit                             // that add something beside functions, for all mutants
}

// splice replaces the text of a function from one offset in the file to another.
type splice struct {
	from, to int
	text     string
}

func (all files) at(path string) (*file, error) {
	if f, known := all[path]; known {
		return f, nil
	}
	source, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &file{path: path, source: string(source), pkg: tree.Name.Name, base: set.File(tree.Pos()).Base(), here: map[*ast.FuncDecl]map[int][]splice{}}
	for _, decl := range tree.Decls {
		if fn, is := decl.(*ast.FuncDecl); is && fn.Body != nil {
			f.funcs = append(f.funcs, fn)
		}
	}
	all[path] = f
	return f, nil
}

func (f *file) text(n ast.Node) string { return f.source[f.offset(n.Pos()):f.offset(n.End())] }

// plan finds the function whose body contains an edit.
func (f *file) plan(number int, e edit) error {
	if n := strings.Count(f.source, e.old); n != 1 {
		return fmt.Errorf("the text to replace is in %s %d times, and should be there once: the source has changed, and so must this mutant:\n%s", f.path, n, e.old)
	}
	from := strings.Index(f.source, e.old)
	if f.replace(number, splice{from, from + len(e.old), e.new}) {
		return nil
	}
	if !strings.Contains(e.new, e.old) {
		return fmt.Errorf("the text to replace is in the body of no function of %s, where an edit can only add, as it is there for all mutants:\n%s", f.path, e.old)
	}
	if !slices.Contains(f.others, e) {
		f.others = append(f.others, e)
	}
	return nil
}

// replace adds the edit to a mutant, if the edit is in the body of a function.
func (f *file) replace(number int, s splice) bool {
	for _, fn := range f.funcs {
		if f.offset(fn.Body.Pos()) <= s.from && s.to <= f.offset(fn.End()) {
			if f.here[fn] == nil {
				f.here[fn] = map[int][]splice{}
			}
			f.here[fn][number] = append(f.here[fn][number], s)
			return true
		}
	}
	return false
}

func (f *file) offset(p token.Pos) int { return int(p) - f.base }

// which is a file with the number of the mutant that is to run.
func (f *file) which() string {
	return fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar %s = os.Getenv(%q)\n", f.pkg, f.number(), running)
}

func (f *file) number() string {
	return "mutantOf_" + strings.TrimSuffix(filepath.Base(f.path), ".go")
}

// woven returns the file with all mutants in it.
func (f *file) woven() string {
	source := f.source
	edited := slices.Collect(maps.Keys(f.here))
	slices.SortFunc(edited, func(a, b *ast.FuncDecl) int { return cmp.Compare(b.Pos(), a.Pos()) }) // later ones first
	for _, fn := range edited {
		source = source[:f.offset(fn.Pos())] + f.variants(fn) + source[f.offset(fn.End()):]
	}
	for _, e := range f.others {
		source = strings.Replace(source, e.old, e.new, 1)
	}
	return source
}

// variants returns a function that calls the variant of the running mutant, and all the variants.
func (f *file) variants(fn *ast.FuncDecl) string {
	head, name := f.source[f.offset(fn.Pos()):f.offset(fn.Name.Pos())], fn.Name.Name
	start, end := f.offset(fn.Name.End()), f.offset(fn.End())
	var cases, variants strings.Builder
	call := f.call(fn)
	for _, number := range slices.Sorted(maps.Keys(f.here[fn])) {
		mutated := spliced(f.source[:end], f.here[fn][number])[start:]
		fmt.Fprintf(&cases, "\tcase \"%d\":\n\t\t%s\n", number, fmt.Sprintf(call, number))
		fmt.Fprintf(&variants, "\n\n%s%s_%d%s", head, name, number, mutated)
	}
	fmt.Fprintf(&variants, "\n\n%s%s_0%s", head, name, f.source[start:end])
	return fmt.Sprintf("%s {\n\tswitch %s {\n%s\tdefault:\n\t\t%s\n\t}\n}%s", f.signature(fn), f.number(), &cases, fmt.Sprintf(call, 0), &variants)
}

// spliced applies the last replacement first.
func spliced(source string, splices []splice) string {
	for _, s := range slices.SortedFunc(slices.Values(splices), func(a, b splice) int { return cmp.Compare(b.from, a.from) }) {
		source = source[:s.from] + s.text + source[s.to:]
	}
	return source
}

// signature returns a function's signature, in which the receiver and all parameters have names.
func (f *file) signature(fn *ast.FuncDecl) string {
	var b strings.Builder
	b.WriteString("func ")
	if fn.Recv != nil {
		fmt.Fprintf(&b, "(r_ %s) ", f.text(fn.Recv.List[0].Type))
	}
	b.WriteString(fn.Name.Name)
	if fn.Type.TypeParams != nil {
		b.WriteString(f.text(fn.Type.TypeParams))
	}
	b.WriteString("(")
	for i, p := range parameters(fn) {
		fmt.Fprintf(&b, "p%d_ %s, ", i, f.text(p))
	}
	b.WriteString(")")
	if fn.Type.Results != nil {
		b.WriteString(" " + f.text(fn.Type.Results))
	}
	return b.String()
}

// call contains a verb for the number of the variant to call.
func (f *file) call(fn *ast.FuncDecl) string {
	var b strings.Builder
	if fn.Type.Results != nil {
		b.WriteString("return ")
	}
	if fn.Recv != nil {
		b.WriteString("r_.")
	}
	b.WriteString(fn.Name.Name + "_%d(")
	for i, p := range parameters(fn) {
		fmt.Fprintf(&b, "p%d_", i)
		if _, variadic := p.(*ast.Ellipsis); variadic {
			b.WriteString("...")
		}
		b.WriteString(", ")
	}
	b.WriteString(")")
	return b.String()
}

// parameters returns the types of a function's parameters, one for each.
func parameters(fn *ast.FuncDecl) (types []ast.Expr) {
	for _, field := range fn.Type.Params.List {
		for range max(1, len(field.Names)) {
			types = append(types, field.Type)
		}
	}
	return types
}
