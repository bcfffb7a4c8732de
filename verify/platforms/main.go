// Command platforms type-checks this module, with its tests, for the platforms that its arguments name:
//
//	go run ./verify/platforms windows/386 darwin/arm64
//
// The go command can vet packages for another platform only after it has compiled all their dependencies for that
// platform. This takes about ten times as long as this command, which leaves out the bodies of the dependencies'
// functions.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

const needed = packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes

func main() {
	own, err := os.Getwd()
	if err != nil {
		fail(err)
	}
	for _, platform := range os.Args[1:] {
		system, architecture, ok := strings.Cut(platform, "/")
		if !ok {
			fail(fmt.Errorf("%q is not a platform; expected a system and an architecture, such as windows/386", platform))
		}
		all, err := packages.Load(&packages.Config{
			Mode:      needed,
			Tests:     true,
			Env:       append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0"),
			ParseFile: parse(own),
		}, "./...")
		if err != nil {
			fail(fmt.Errorf("%s: %w", platform, err))
		}
		if errs := errorsIn(own, all); len(errs) > 0 {
			fail(fmt.Errorf("%s: %w", platform, errors.Join(errs...)))
		}
		fmt.Printf("%s: %d packages\n", platform, len(all))
	}
}

// errorsIn returns the errors of all packages, except type errors outside the given directory. Those are ignored
// because parse has left out function bodies there, so that imports, for example, seem to be unused.
func errorsIn(own string, all []*packages.Package) (errs []error) {
	for _, p := range all {
		for _, err := range p.Errors {
			if err.Kind != packages.TypeError || strings.HasPrefix(err.Pos, own+string(os.PathSeparator)) {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// parse returns a parser that leaves out function bodies in files outside the given directory.
func parse(own string) func(*token.FileSet, string, []byte) (*ast.File, error) {
	return func(files *token.FileSet, name string, source []byte) (*ast.File, error) {
		if strings.HasPrefix(name, own+string(os.PathSeparator)) {
			return parser.ParseFile(files, name, source, parser.AllErrors|parser.ParseComments)
		}
		f, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return f, err
		}
		for _, d := range f.Decls {
			if function, ok := d.(*ast.FuncDecl); ok {
				function.Body = nil
			}
		}
		return f, nil
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
