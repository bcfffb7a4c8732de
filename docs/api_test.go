package docs

import (
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

func load(t *testing.T, pattern string, tests bool) []*packages.Package {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadTypes | packages.NeedSyntax | packages.NeedTypesInfo, Tests: tests}, pattern)
	require.NoError(t, err)
	require.NotEmpty(t, loaded)
	return loaded
}

// An option compiles for the kinds of locks that it is for, and for no other kind. The lines of testdata/options
// that must not compile say so. Each option is there once for each kind, and a common option once for all of them.
func TestAnOptionForOtherKindsDoesNotCompile(t *testing.T) {
	file, err := filepath.Abs("testdata/options/options_test.go")
	require.NoError(t, err)
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	var wrong, refused []string
	for i, line := range strings.Split(string(source), "\n") {
		if strings.HasSuffix(line, "// wrong") {
			wrong = append(wrong, fmt.Sprintf("%s:%d", file, i+1))
		}
	}
	for _, p := range load(t, "./testdata/options", true) {
		for _, e := range p.Errors {
			if e.Kind == packages.TypeError {
				refused = append(refused, e.Pos[:strings.LastIndex(e.Pos, ":")])
				assert.Regexp(t, `does not implement .* \(missing method for(Electors|Locks|Groups)\)`, e.Msg)
			}
		}
		for _, imported := range p.Types.Imports() {
			for _, name := range imported.Scope().Names() {
				if call := imported.Name() + "." + name + "("; strings.HasPrefix(name, "With") {
					assert.Contains(t, []int{1, 3}, strings.Count(string(source), call), call)
				}
			}
		}
	}
	assert.Equal(t, wrong, refused)
}

// go doc can't show the methods of an internal type, and no program can name it.
func TestNoPublicSignatureNamesAnInternalType(t *testing.T) {
	checked := 0
	for _, p := range load(t, module+"/...", false) {
		if strings.Contains(p.PkgPath, "/internal/") || p.Name == "main" {
			continue
		}
		for _, name := range p.Types.Scope().Names() {
			for _, shown := range signatures(p.Types.Scope().Lookup(name)) {
				assert.NotContains(t, shown, "/internal/", "%s.%s", p.PkgPath, name)
				checked++
			}
		}
	}
	assert.Greater(t, checked, 200)
	// The adapters use only the public API, and so do their signatures.
	files, err := filepath.Glob("../adapters/*/*.go")
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			assert.NotContains(t, string(source), "spindle/internal/", file)
		}
	}
}

// signatures returns what go doc shows of an object, without the names of its fields. An alias is shown even if it is not
// exported, because it has the other type's identity.
func signatures(o types.Object) (shown []string) {
	named, isType := o.(*types.TypeName)
	switch {
	case isType && named.IsAlias():
		return []string{types.Unalias(o.Type()).String()}
	case !o.Exported():
		return nil
	case !isType:
		return []string{o.Type().String()}
	}
	if fields, is := o.Type().Underlying().(*types.Struct); is {
		for f := range fields.Fields() {
			if f.Exported() {
				shown = append(shown, f.Type().String())
			}
		}
	} else {
		shown = append(shown, o.Type().Underlying().String())
	}
	for m := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
		if m.Obj().Exported() {
			shown = append(shown, m.Type().String())
		}
	}
	return shown
}
