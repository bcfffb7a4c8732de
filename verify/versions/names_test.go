//go:build versions && unix

package versions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What scripts, clients, dashboards and alerts use stays: the previous version's commands, flags, variables, exit codes,
// metrics, keys and values of JSON, and the names in the agent's requests and lines are also this version's. Keys may go
// only with the first number of the schema's version.
func TestWhatScriptsAndDashboardsReadStays(t *testing.T) {
	for file, names := range map[string]func([]byte) []string{
		"cmd/spindle/internal/cli/schema.json":     schemaKeys,
		"cmd/spindle/internal/cli/commandline.txt": matches(`(?m)^(.+)$`),
		"cmd/spindle/internal/exit/exit.go":        matches(`(?m)^\t\w+ += (\d+ // \w+)`), // the code, and the command
		"docs/monitoring.md":                       matches("`(spindle[._][a-z._]+)`"),
		"docs/agent.md":                            inTables(matches("`((?:GET|POST) /[^`?]*|[a-z_-]+)[`?]")), // requests, parameters, codes, events, keys
	} {
		before, err := os.ReadFile(filepath.Join(dir, "source", file))
		if os.IsNotExist(err) {
			t.Logf("%s has no %s, so it promised nothing there", *previous, file)
			continue
		}
		require.NoError(t, err)
		now, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err)
		require.NotEmpty(t, names(before), file)
		if schemaMajor(before) != schemaMajor(now) {
			continue
		}
		kept := names(now)
		promised := names(before)
		slices.Sort(promised)
		for _, name := range slices.Compact(promised) {
			assert.True(t, slices.Contains(kept, name), "%s of %s has %s", file, *previous, name)
		}
	}
}

func matches(pattern string) func([]byte) []string {
	return func(text []byte) (found []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			found = append(found, strings.Join(strings.Fields(m[1]), " "))
		}
		return found
	}
}

// inTables applies names to the rows of a document's tables.
func inTables(names func([]byte) []string) func([]byte) []string {
	rows := regexp.MustCompile(`(?m)^\|.*$`)
	return func(text []byte) []string { return names(bytes.Join(rows.FindAll(text, -1), []byte("\n"))) }
}

// schemaKeys returns the place of each key that a schema allows, with its type, its values if only some are allowed, and
// the keys that are always there.
func schemaKeys(text []byte) []string {
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil
	}
	return keysBelow("", schema)
}

func keysBelow(place string, schema map[string]any) (found []string) {
	for name, value := range schema {
		at := place + "/" + name
		switch value := value.(type) {
		case map[string]any:
			for _, says := range []string{"type", "const", "$ref"} {
				if said, ok := value[says]; ok {
					found = append(found, fmt.Sprint(at, ": ", said))
				}
			}
			found = append(found, keysBelow(at, value)...)
		case []any:
			for _, key := range value {
				if name == "required" || name == "enum" {
					found = append(found, fmt.Sprint(at, ": ", key))
				}
			}
		}
	}
	return found
}

// schemaMajor returns the first number of a schema's version, or "" for other files.
func schemaMajor(text []byte) string {
	id := regexp.MustCompile(`"\$id": "[^"]*/schema/(\d+)\.`).FindSubmatch(text)
	if id == nil {
		return ""
	}
	return string(id[1])
}
