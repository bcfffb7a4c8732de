//go:build mutants

package mutants

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// All mutants are built at once: to link each with the client of Spanner would take longer than all tests of them. A
// function that mutants edit is there once as it is in the source, and once more for each of them. The environment of
// the process says which is called, for as long as it runs:
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

var packages = []string{".", "./group", "./internal/elect", "./internal/table", "./lock", "./simulation"}

// all are the mutants of all lists. The number of a mutant is its place here, from 1 on.
func all() []mutant {
	list := slices.Concat(mutants, groupMutants)
	for _, m := range shortMutants() {
		list = append(list, m.mutant)
	}
	return list
}

// TestEveryMutantHasItsPlace applies all edits and builds nothing, for those who change the code.
func TestEveryMutantHasItsPlace(t *testing.T) {
	if _, err := overlayOf(all(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
}

var dir string // of all that is built

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "mutants"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build makes, the first time, the tests of packages with all mutants in them.
var build = sync.OnceValue(func() error {
	overlay, err := overlayOf(all(), dir)
	if err != nil {
		return err
	}
	compile := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", dir+"/")
	compile.Args = append(compile.Args, packages...)
	compile.Dir = ".."
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("a mutant does not compile: %w\n%s", err, out)
	}
	return nil
})

// test runs tests of a package with a mutant, or with none, which is number 0.
func test(t *testing.T, pkg string, number int, args ...string) (string, error) {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs(filepath.Join("..", pkg))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(source)
	if pkg == "." {
		name = "spindle"
	}
	run := exec.Command(filepath.Join(dir, name+".test"), args...)
	run.Dir = source
	run.Env = append(os.Environ(), fmt.Sprintf("%s=%d", running, number))
	out, err := run.CombinedOutput()
	return string(out), err
}

// overlayOf writes every file that mutants edit, with all of them in it, and returns the file that tells go of them.
func overlayOf(mutants []mutant, dir string) (string, error) {
	files := map[string]*file{}
	for i, m := range mutants {
		for _, e := range m.edits {
			f, err := parsed(files, e.file)
			if err == nil {
				err = f.plan(i+1, e)
			}
			if err != nil {
				return "", fmt.Errorf("mutant %q: %w", m.name, err)
			}
		}
	}
	replace := map[string]string{}
	for i, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		absolute, err := filepath.Abs(filepath.Join("..", path))
		if err != nil {
			return "", err
		}
		beside := filepath.Join(filepath.Dir(absolute), "mutant_of_"+filepath.Base(absolute))
		for at, source := range map[string]string{absolute: f.woven(), beside: f.which()} {
			replace[at] = filepath.Join(dir, fmt.Sprintf("%d_%s", i, filepath.Base(at)))
			if err := os.WriteFile(replace[at], []byte(source), 0o600); err != nil {
				return "", err
			}
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// file is one that mutants edit.
type file struct {
	path   string
	source string
	pkg    string
	base   int // of positions
	funcs  []*ast.FuncDecl
	here   map[*ast.FuncDecl]map[int][]edit // by number
	others []edit                           // that add something beside functions, for all mutants
}

func parsed(files map[string]*file, path string) (*file, error) {
	if f, known := files[path]; known {
		return f, nil
	}
	source, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &file{path: path, source: string(source), pkg: tree.Name.Name, base: set.File(tree.Pos()).Base(), here: map[*ast.FuncDecl]map[int][]edit{}}
	for _, decl := range tree.Decls {
		if fn, is := decl.(*ast.FuncDecl); is && fn.Body != nil {
			f.funcs = append(f.funcs, fn)
		}
	}
	files[path] = f
	return f, nil
}

func (f *file) text(n ast.Node) string { return f.source[int(n.Pos())-f.base : int(n.End())-f.base] }

// plan finds the function whose body an edit is in.
func (f *file) plan(number int, e edit) error {
	if n := strings.Count(f.source, e.old); n != 1 {
		return fmt.Errorf("the text to replace is in %s %d times, and should be there once: the source has changed, and so must this mutant:\n%s", f.path, n, e.old)
	}
	from := token.Pos(strings.Index(f.source, e.old) + f.base)
	to := from + token.Pos(len(e.old))
	for _, fn := range f.funcs {
		if fn.Body.Pos() <= from && to <= fn.End() {
			if f.here[fn] == nil {
				f.here[fn] = map[int][]edit{}
			}
			f.here[fn][number] = append(f.here[fn][number], e)
			return nil
		}
	}
	if !strings.Contains(e.new, e.old) {
		return fmt.Errorf("the text to replace is in the body of no function of %s, where an edit can only add, as it is there for all mutants:\n%s", f.path, e.old)
	}
	if !slices.Contains(f.others, e) {
		f.others = append(f.others, e)
	}
	return nil
}

// which is a file with the number of the mutant that is to run.
func (f *file) which() string {
	return fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar %s = os.Getenv(%q)\n", f.pkg, f.number(), running)
}

func (f *file) number() string {
	return "mutantOf_" + strings.TrimSuffix(filepath.Base(f.path), ".go")
}

// woven is the file with all mutants in it.
func (f *file) woven() string {
	source := f.source
	edited := slices.Collect(maps.Keys(f.here))
	slices.SortFunc(edited, func(a, b *ast.FuncDecl) int { return cmp.Compare(b.Pos(), a.Pos()) }) // later ones first
	for _, fn := range edited {
		source = source[:int(fn.Pos())-f.base] + f.variants(fn) + source[int(fn.End())-f.base:]
	}
	for _, e := range f.others {
		source = strings.Replace(source, e.old, e.new, 1)
	}
	return source
}

// variants is a function that calls the one of the mutant that runs, and all of those.
func (f *file) variants(fn *ast.FuncDecl) string {
	head, name := f.source[int(fn.Pos())-f.base:int(fn.Name.Pos())-f.base], fn.Name.Name
	tail := f.source[int(fn.Name.End())-f.base : int(fn.End())-f.base]
	var cases, variants strings.Builder
	call := f.call(fn)
	for _, number := range slices.Sorted(maps.Keys(f.here[fn])) {
		mutated := tail
		for _, e := range f.here[fn][number] {
			mutated = strings.Replace(mutated, e.old, e.new, 1)
		}
		fmt.Fprintf(&cases, "\tcase \"%d\":\n\t\t%s\n", number, fmt.Sprintf(call, number))
		fmt.Fprintf(&variants, "\n\n%s%s_%d%s", head, name, number, mutated)
	}
	fmt.Fprintf(&variants, "\n\n%s%s_0%s", head, name, tail)
	return fmt.Sprintf("%s {\n\tswitch %s {\n%s\tdefault:\n\t\t%s\n\t}\n}%s", f.signature(fn), f.number(), &cases, fmt.Sprintf(call, 0), &variants)
}

// signature is that of a function, whose receiver and parameters all have names here.
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

// call has a verb for the number of the variant that is called.
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

// parameters are the types of a function's, one for each.
func parameters(fn *ast.FuncDecl) (types []ast.Expr) {
	for _, field := range fn.Type.Params.List {
		for range max(1, len(field.Names)) {
			types = append(types, field.Type)
		}
	}
	return types
}
