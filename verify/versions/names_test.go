//go:build versions && unix

package versions

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What scripts, dashboards and alerts read stays: the previous version's metrics, exit codes, and keys of JSON are also
// this version's. Keys may go only with the first number of the schema's version.
func TestWhatScriptsAndDashboardsReadStays(t *testing.T) {
	for file, names := range map[string]func([]byte) []string{
		"cmd/spindle/internal/cli/schema.json": schemaKeys,
		"cmd/spindle/internal/exit/exit.go":    matches(`(?m)^\t(\w+ += \d+) //`),
		"docs/monitoring.md":                   matches("`(spindle[._][a-z._]+)`"),
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
		for _, name := range names(before) {
			assert.Contains(t, kept, name, "of %s, in %s", *previous, file)
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

// schemaKeys returns the place of each key that a schema allows, with its type, and the keys that are always there.
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
			if kind, ok := value["type"].(string); ok {
				found = append(found, at+": "+kind)
			}
			found = append(found, keysBelow(at, value)...)
		case []any:
			for _, key := range value {
				if name == "required" {
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
