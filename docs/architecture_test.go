// Package docs contains the documents, and tests that keep them accurate.
package docs

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/spindle-lock/spindle"

// TestImportsRunOneWay compares testdata/imports with the imports of each package.
func TestImportsRunOneWay(t *testing.T) {
	text, err := os.ReadFile("testdata/imports")
	require.NoError(t, err)
	allowed := map[string][]string{}
	for _, row := range regexp.MustCompile(`(?m)^([^#\n]+?):(.*)$`).FindAllStringSubmatch(string(text), -1) {
		allowed[row[1]] = strings.Fields(row[2])
	}
	list := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", module+"/...")
	out, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		packages := strings.Fields(line)
		room := roomOf(packages[0])
		if room == "docs" {
			continue
		}
		rooms, known := allowed[room]
		assert.True(t, known, "give %s a line in docs/testdata/imports", room)
		delete(allowed, room)
		for _, imported := range packages[1:] {
			if strings.HasPrefix(imported, module) {
				assert.True(t, slices.Contains(rooms, roomOf(imported)), "%s imports %s, which docs/testdata/imports does not allow", room, roomOf(imported))
			}
		}
	}
	assert.Empty(t, allowed, "in docs/testdata/imports, but not in the project")
}

// TestTheDecisionsOfGroupsArePure: what a member of a group concludes depends only on values. It can neither wait, nor
// send a request, nor ask a clock.
func TestTheDecisionsOfGroupsArePure(t *testing.T) {
	list := exec.Command("go", "list", "-f", "{{join .Imports \" \"}}", module+"/internal/plan", module+"/internal/share")
	out, err := list.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), module+"/internal/table")
	assert.NotContains(t, strings.Fields(string(out)), "context")
	clock := regexp.MustCompile(`elect\.(Clock|SystemClock|Backoff|Jitter|Sleep)|time\.(Now|Since|Until|After|Tick|NewT|Sleep)|\bgo func`)
	for _, room := range []string{"plan", "share"} {
		files, err := filepath.Glob("../internal/" + room + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			if !strings.HasSuffix(file, "_test.go") {
				assert.NotRegexp(t, clock, string(source), file)
			}
		}
	}
}

// TestTheLibraryBringsNothingOfTheCommand: a program that uses the library does not include dependencies that only the
// command or tests need.
func TestTheLibraryBringsNothingOfTheCommand(t *testing.T) {
	list := exec.Command("go", "list", "-deps", module, module+"/lock", module+"/group", module+"/ddl", module+"/doctor", module+"/spindletest")
	out, err := list.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), module+"/internal/table\n")
	for _, not := range []string{"github.com/prometheus/", "github.com/chromedp/", "github.com/spf13/", "charm.land/", "github.com/charmbracelet/"} {
		assert.NotContains(t, string(out), not)
	}
}

// TestNoProgramHasTheToolsOfTests: programs include neither the lock table in memory, which is only for tests, nor
// package testing.
func TestNoProgramHasTheToolsOfTests(t *testing.T) {
	list := exec.Command("go", "list", "-deps", module, module+"/lock", module+"/group", module+"/ddl", module+"/doctor", module+"/cmd/spindle")
	out, err := list.Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, module+"/internal/table")
	require.Contains(t, packages, "time/tzdata", "the command knows the zones of --tz on machines that do not")
	for _, not := range []string{"testing", module + "/spindletest", module + "/internal/testkit/memstore", module + "/internal/testkit/network"} {
		assert.NotContains(t, packages, not)
	}
}

func roomOf(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// TestTheProgramOfTheReadmeCompiles compares its text with that of examples/quickstart.
func TestTheProgramOfTheReadmeCompiles(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	require.NotNil(t, shown)
	program, err := os.ReadFile("../examples/quickstart/main.go")
	require.NoError(t, err)
	assert.Contains(t, string(program), string(shown[1]))
	assert.LessOrEqual(t, strings.Count(string(shown[1]), "\n"), 29, "the first program is short")
}

// TestTheFiguresOfTheReadmeAreMeasured: the figures in each row of the README's costs appear in a single row of
// docs/performance.md, which lists the command that measures them.
func TestTheFiguresOfTheReadmeAreMeasured(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	performance, err := os.ReadFile("performance.md")
	require.NoError(t, err)
	costs := regexp.MustCompile(`(?ms)^## Cost$(.*?)^## `).FindSubmatch(readme)
	require.NotNil(t, costs)
	number := regexp.MustCompile(`\d[\d.,]*`)
	rows := regexp.MustCompile(`(?m)^\| \S.*\d.*\|$`)
	claims := rows.FindAllString(string(costs[1]), -1)
	require.NotEmpty(t, claims)
	for _, claim := range claims {
		measured := slices.ContainsFunc(rows.FindAllString(string(performance), -1), func(row string) bool {
			figures := number.FindAllString(row, -1)
			return !slices.ContainsFunc(number.FindAllString(withoutCode(claim), -1), func(figure string) bool { return !slices.Contains(figures, figure) })
		})
		assert.True(t, measured, "no row of docs/performance.md has the figures of: %s", claim)
	}
}

// TestTheRecipesAreTested: each code block of the recipes appears in examples/recipes, which has tests, and each file
// there appears in a recipe.
func TestTheRecipesAreTested(t *testing.T) {
	text, err := os.ReadFile("recipes.md")
	require.NoError(t, err)
	var pieces []string
	for _, piece := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1) {
		pieces = append(pieces, string(piece[1]))
	}
	files, err := filepath.Glob("../examples/recipes/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		before := len(pieces)
		pieces = slices.DeleteFunc(pieces, func(piece string) bool {
			return strings.Contains(string(source), piece) || strings.Contains(string(source), regexp.MustCompile("(?m)^(.)").ReplaceAllString(piece, "\t$1"))
		})
		assert.True(t, len(pieces) < before || strings.HasSuffix(file, "_test.go"), "%s is in no recipe", file)
	}
	assert.Empty(t, pieces, "not in examples/recipes")
}

// TestTheViewOfTheDocumentsCompiles compares the view in the document with the tested example.
func TestTheViewOfTheDocumentsCompiles(t *testing.T) {
	text, err := os.ReadFile("monitoring.md")
	require.NoError(t, err)
	example, err := os.ReadFile("../example_metrics_test.go")
	require.NoError(t, err)
	view := regexp.MustCompile("(?ms)^func withoutNames.*?^}").Find(example)
	require.NotNil(t, view)
	assert.Contains(t, string(text), string(view))
}

// TestTheTestsThatDocumentsNameExist keeps the tables of faults and similar references up to date.
func TestTheTestsThatDocumentsNameExist(t *testing.T) {
	tests := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, f := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			tests[f[1]] = true
		}
		return err
	}))
	names := slices.Collect(maps.Keys(tests))
	documents, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	here, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, document := range append(documents, here...) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z]\\w+)`").FindAllStringSubmatch(string(text), -1) {
			assert.True(t, tests[name[1]], "%s names %s, which does not exist", document, name[1])
		}
		for _, selected := range regexp.MustCompile(`-(?:run|bench) (?:'([^']+)'|([A-Z]\w+))`).FindAllStringSubmatch(string(text), -1) {
			for pattern := range strings.SplitSeq(selected[1]+selected[2], "|") {
				top, _, _ := strings.Cut(pattern, "/")
				matches := regexp.MustCompile(top).MatchString
				assert.True(t, top == "^$" || slices.ContainsFunc(names, matches), "%s: -run or -bench %s selects nothing", document, pattern)
			}
		}
	}
}
