//go:build mutants

package mutants

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// change replaces a piece of a function in a generated mutant.
type change struct {
	pkg, file string
	line      int
	kind      string
	splice
}

// pkg is a package of this module.
type pkg struct {
	Dir, ImportPath, Export string
	GoFiles                 []string

	path string // such as ./group
}

// tree contains packages of this module, and the packages that they import.
type tree struct {
	root    string
	exports map[string]string // files of export data, by import path
	module  []*pkg            // each after those that it imports
}

func treeOf(paths []string) (*tree, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", "list", "-deps", "-export", "-json=Dir,ImportPath,Export,GoFiles")
	list.Args = append(list.Args, paths...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, exports: map[string]string{}}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return t, nil
		} else if err != nil {
			return nil, err
		}
		t.exports[p.ImportPath] = p.Export
		if within, ok := strings.CutPrefix(p.Dir+"/", root+"/"); ok {
			p.path = cmp.Or(strings.TrimSuffix("./"+filepath.ToSlash(within), "/"), ".")
			t.module = append(t.module, p)
		}
	}
}

// checked is a type-checked package.
type checked struct {
	*pkg
	files []*ast.File
	info  *types.Info
	wrong []types.Error // what does not compile
}

// sources imports packages of this module as they were checked, including their changes.
type sources struct {
	done map[string]*types.Package
	rest types.Importer
}

func (s sources) Import(path string) (*types.Package, error) {
	if p := s.done[path]; p != nil {
		return p, nil
	}
	return s.rest.Import(path)
}

// check type-checks the packages, with some files replaced or added.
func (t *tree) check(instead map[string]string) (*token.FileSet, []checked, error) {
	set, all := token.NewFileSet(), []checked(nil)
	from := sources{map[string]*types.Package{}, importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(t.exports[path]) })}
	for _, p := range t.module {
		c := checked{pkg: p, info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}}
		texts := map[string]any{}
		for _, name := range p.GoFiles {
			texts[filepath.Join(p.Dir, name)] = nil
		}
		for path, text := range instead {
			if filepath.Dir(path) == p.Dir && !strings.HasSuffix(path, "_test.go") {
				texts[path] = text
			}
		}
		for _, path := range slices.Sorted(maps.Keys(texts)) {
			f, err := parser.ParseFile(set, path, texts[path], parser.SkipObjectResolution)
			if err != nil {
				return nil, nil, err
			}
			c.files = append(c.files, f)
		}
		config := types.Config{Importer: from, Error: func(err error) {
			var one types.Error
			if errors.As(err, &one) {
				c.wrong = append(c.wrong, one)
			}
		}}
		from.done[p.ImportPath], _ = config.Check(p.ImportPath, set, c.files, c.info) // its error is the first of c.wrong
		all = append(all, c)
	}
	return set, all, nil
}

// changes returns all changes that can be made in the functions of those packages.
func (t *tree) changes(paths []string) ([]change, error) {
	set, all, err := t.check(nil)
	if err != nil {
		return nil, err
	}
	var found []change
	for _, c := range all {
		if !slices.Contains(paths, c.path) {
			continue
		}
		if len(c.wrong) > 0 {
			return nil, c.wrong[0]
		}
		for _, f := range c.files {
			path := set.File(f.Pos()).Name()
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			within, err := filepath.Rel(t.root, path)
			if err != nil {
				return nil, err
			}
			g := &generator{pkg: c.path, path: filepath.ToSlash(within), source: string(text), file: set.File(f.Pos()), info: c.info}
			for _, decl := range f.Decls {
				if fn, is := decl.(*ast.FuncDecl); is && fn.Body != nil && fn.Name.Name != "init" {
					ast.PreorderStack(fn.Body, nil, g.visit)
				}
			}
			found = append(found, g.found...)
		}
	}
	return found, nil
}

// broken returns the woven mutants that do not compile, by number.
func (t *tree) broken(woven files) (map[int]error, error) {
	texts, err := woven.sources()
	if err != nil {
		return nil, err
	}
	_, all, err := t.check(texts)
	if err != nil {
		return nil, err
	}
	broken := map[int]error{}
	for _, c := range all {
		for _, one := range c.wrong {
			number := variantAt(c.files, one.Pos)
			if number == 0 {
				return nil, fmt.Errorf("not in a mutant: %w", one)
			}
			broken[number] = one
		}
	}
	return broken, nil
}

// variantAt returns the number of the mutant whose variant of a function is at this position, or 0.
func variantAt(parsed []*ast.File, at token.Pos) int {
	for _, f := range parsed {
		for _, decl := range f.Decls {
			if fn, is := decl.(*ast.FuncDecl); is && fn.Pos() <= at && at < fn.End() {
				number, _ := strconv.Atoi(fn.Name.Name[strings.LastIndex(fn.Name.Name, "_")+1:])
				return number
			}
		}
	}
	return 0
}

// generator finds the changes that can be made in one file.
type generator struct {
	pkg, path string
	source    string
	file      *token.File
	info      *types.Info
	found     []change
}

func (g *generator) text(n ast.Node) string { return g.source[g.at(n.Pos()):g.at(n.End())] }

func (g *generator) at(p token.Pos) int { return g.file.Offset(p) }

func (g *generator) put(kind string, from, to token.Pos, text string) {
	g.found = append(g.found, change{g.pkg, g.path, g.file.Line(from), kind, splice{g.at(from), g.at(to), text}})
}

func (g *generator) replace(kind string, n ast.Node, text string) {
	g.put(kind, n.Pos(), n.End(), text)
}

var operators = map[token.Token]struct {
	kind string
	op   token.Token
}{
	token.LSS: {"comparison shifted", token.LEQ}, token.LEQ: {"comparison shifted", token.LSS},
	token.GTR: {"comparison shifted", token.GEQ}, token.GEQ: {"comparison shifted", token.GTR},
	token.EQL: {"comparison negated", token.NEQ}, token.NEQ: {"comparison negated", token.EQL},
	token.LAND: {"or for and", token.LOR}, token.LOR: {"and for or", token.LAND},
	token.ADD: {"arithmetic", token.SUB}, token.SUB: {"arithmetic", token.ADD},
	token.MUL: {"arithmetic", token.QUO}, token.QUO: {"arithmetic", token.MUL}, token.REM: {"arithmetic", token.MUL},
}

// visit collects the changes of one node. Log messages and the wording of errors are not changed.
func (g *generator) visit(n ast.Node, stack []ast.Node) bool {
	var parent ast.Node
	if len(stack) > 0 {
		parent = stack[len(stack)-1]
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		g.condition(n.Cond)
		if n.Else == nil {
			g.replace("guard removed", n.Cond, "false && ("+g.text(n.Cond)+")")
		}
	case *ast.ForStmt:
		if n.Cond != nil {
			g.condition(n.Cond)
		}
	case *ast.BinaryExpr:
		g.binary(n, parent)
	case *ast.UnaryExpr:
		if n.Op == token.NOT && !isCondition(n, parent) || n.Op == token.SUB {
			g.put("operator dropped", n.Pos(), n.X.Pos(), "")
		}
	case *ast.BasicLit:
		if !g.besideError(n, stack) {
			g.literal(n)
		}
	case *ast.Ident:
		if !g.besideError(n, stack) {
			g.ident(n, parent)
		}
	case *ast.CallExpr:
		if g.words(n) {
			return false
		}
		g.call(n, parent)
	case *ast.ReturnStmt:
		for _, result := range n.Results {
			g.result(result)
		}
	case *ast.BranchStmt:
		g.branch(n, stack)
	case *ast.CaseClause:
		if n.List != nil {
			g.replace("case removed", n, "")
		}
	case *ast.CommClause:
		if n.Comm != nil {
			g.replace("case removed", n, "")
		}
	}
	if stmt, is := n.(ast.Stmt); is {
		g.statement(stmt, parent)
	}
	return true
}

func isCondition(n ast.Expr, parent ast.Node) bool {
	switch parent := parent.(type) {
	case *ast.IfStmt:
		return parent.Cond == n
	case *ast.ForStmt:
		return parent.Cond == n
	}
	return false
}

func (g *generator) condition(n ast.Expr) {
	g.replace("condition negated", n, "!("+g.text(n)+")")
}

func (g *generator) binary(n *ast.BinaryExpr, parent ast.Node) {
	to, known := operators[n.Op]
	switch {
	case !known, to.kind == "arithmetic" && !g.is(n.X, types.IsNumeric), to.kind == "comparison negated" && isCondition(n, parent),
		to.kind == "comparison shifted" && g.isDuration(n.X): // by a nanosecond, which no clock tells
		return
	}
	g.put(to.kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to.op.String())
	if n.Op == token.LAND || n.Op == token.LOR {
		g.put("condition dropped", n.Pos(), n.Y.Pos(), "")
		g.put("condition dropped", n.X.End(), n.End(), "")
	}
}

// is reports whether the expression's type is a basic type of that kind, or is based on one.
func (g *generator) is(n ast.Expr, kind types.BasicInfo) bool {
	basic, is := g.info.TypeOf(n).Underlying().(*types.Basic)
	return is && basic.Info()&kind != 0
}

func (g *generator) isDuration(n ast.Expr) bool {
	return types.TypeString(g.info.TypeOf(n), nil) == "time.Duration"
}

// besideError reports whether an expression is returned together with an error, which makes it meaningless.
func (g *generator) besideError(n ast.Expr, stack []ast.Node) bool {
	for _, around := range slices.Backward(stack) {
		switch around := around.(type) {
		case *ast.ReturnStmt:
			last := around.Results[len(around.Results)-1]
			return last.Pos() > n.Pos() && isError(g.info.TypeOf(last)) && !g.info.Types[last].IsNil()
		case *ast.CallExpr, ast.Stmt:
			return false
		}
	}
	return false
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// literal turns zero into one or into a second, and doubles other values, such as durations and fractions.
func (g *generator) literal(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	v, exact := constant.Int64Val(constant.MakeFromLiteral(n.Value, n.Kind, 0))
	switch {
	case !exact:
	case v == 0 && g.isDuration(n):
		g.replace("number", n, fmt.Sprint(int64(time.Second)))
	default:
		g.replace("number", n, fmt.Sprint(max(2*v, 1)))
	}
}

func (g *generator) ident(n *ast.Ident, parent ast.Node) {
	if _, selected := parent.(*ast.SelectorExpr); selected {
		return
	}
	instead := map[types.Object]string{
		types.Universe.Lookup("true"): "false", types.Universe.Lookup("false"): "true",
		types.Universe.Lookup("min"): "max", types.Universe.Lookup("max"): "min",
	}
	if text := instead[g.info.Uses[n]]; text != "" {
		g.replace(n.Name+" swapped", n, text)
	}
}

// words reports whether a call only produces text for people.
func (g *generator) words(n *ast.CallExpr) bool {
	fn, is := n.Fun.(*ast.SelectorExpr)
	if !is {
		return false
	}
	of := g.info.Uses[fn.Sel]
	if of == nil || of.Pkg() == nil {
		return false
	}
	return of.Pkg().Path() == "log/slog" || of.Pkg().Path() == "fmt" || of.Pkg().Path() == "errors" && of.Name() == "New"
}

// call removes a call that derives a value from another of the same type, such as a clone, a derived ctx, or trimmed
// text.
func (g *generator) call(n *ast.CallExpr, parent ast.Node) {
	if _, alone := parent.(*ast.ExprStmt); alone || g.info.Types[n.Fun].IsType() {
		return
	}
	of := g.info.TypeOf(n)
	for _, arg := range n.Args {
		if of != nil && types.Identical(g.info.TypeOf(arg), of) {
			g.replace("call dropped", n, g.text(arg))
			return
		}
	}
}

func (g *generator) result(n ast.Expr) {
	of := g.info.TypeOf(n)
	switch {
	case g.info.Types[n].IsNil():
	case isError(of):
		g.replace("error dropped", n, "nil")
	case g.is(n, types.IsBoolean) && g.info.Types[n].Value == nil:
		g.replace("result negated", n, "!("+g.text(n)+")")
	}
}

// branch swaps break and continue if both refer to the same loop.
func (g *generator) branch(n *ast.BranchStmt, stack []ast.Node) {
	if n.Label != nil || n.Tok != token.BREAK && n.Tok != token.CONTINUE {
		return
	}
	for _, around := range slices.Backward(stack) {
		switch around.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			if n.Tok == token.BREAK {
				g.replace("continue for break", n, "continue")
			} else {
				g.replace("break for continue", n, "break")
			}
			return
		case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt, *ast.FuncLit:
			return
		}
	}
}

// statement removes a statement.
func (g *generator) statement(n ast.Stmt, parent ast.Node) {
	switch parent := parent.(type) {
	case *ast.BlockStmt, *ast.CaseClause:
	case *ast.CommClause:
		if n == parent.Comm {
			return
		}
	default:
		return
	}
	switch n := n.(type) {
	case *ast.ExprStmt:
		if call, is := n.X.(*ast.CallExpr); is && g.words(call) {
			return
		}
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE || len(n.Lhs) == 1 && g.text(n.Lhs[0]) == "_" {
			return
		}
	case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
	default:
		return
	}
	g.replace("statement removed", n, "")
}
