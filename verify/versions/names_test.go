//go:build versions && unix

package versions

import (
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
		"cmd/spindle/internal/terminal/exit.go":    exitCodes,
		"docs/monitoring.md":                       matches("`(spindle[._][a-z._]+)`"),
		"cmd/spindle/internal/agent/openapi.json":  agentNames,
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

// exitCodes returns each exit code, and each command that uses it.
func exitCodes(text []byte) (found []string) {
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ += (\d+) // (.*)$`).FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
		for _, command := range regexp.MustCompile(`(\w+):`).FindAllStringSubmatch(m[2], -1) {
			found = append(found, m[1]+" of "+command[1])
		}
	}
	return found
}

// agentNames returns the agent's requests with their parameters, its codes with their status, its events, and the keys of
// its lines with their types.
func agentNames(text []byte) (found []string) {
	var api struct {
		Paths      map[string]map[string]struct{ Parameters []map[string]any }
		Components struct {
			Schemas struct {
				Line, Hold map[string]any
				Problem    struct{ OneOf []any }
			}
		}
	}
	if err := json.Unmarshal(text, &api); err != nil {
		return nil
	}
	for path, methods := range api.Paths {
		for method, request := range methods {
			found = append(found, method+" "+path)
			for _, p := range request.Parameters {
				found = append(found, fmt.Sprint(method, " ", path, ": ", p["name"], p["$ref"]))
			}
		}
	}
	for _, p := range api.Components.Schemas.Problem.OneOf {
		of := p.(map[string]any)["properties"].(map[string]any)
		for _, code := range of["code"].(map[string]any)["enum"].([]any) {
			found = append(found, fmt.Sprint(of["status"].(map[string]any)["const"], " ", code))
		}
	}
	for name, schema := range map[string]map[string]any{"line": api.Components.Schemas.Line, "hold": api.Components.Schemas.Hold} {
		found = append(found, keysBelow(schema, name, schema)...)
	}
	return found
}

// schemaKeys returns the place of each key that a schema allows, with its type, its values if only some are allowed, and
// the keys that are always there. A key that is described elsewhere in the schema has what is there.
func schemaKeys(text []byte) []string {
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil
	}
	return keysBelow(schema, "", schema)
}

func keysBelow(whole map[string]any, place string, schema map[string]any) (found []string) {
	if ref, ok := schema["$ref"].(string); ok {
		return keysBelow(whole, place, whole["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any))
	}
	for name, value := range schema {
		switch value := value.(type) {
		case string:
			if name == "type" {
				found = append(found, place+": "+value)
			}
			if name == "const" {
				found = append(found, place+" can be "+value)
			}
		case []any:
			for _, one := range value {
				switch one := one.(type) {
				case map[string]any: // one of several forms
					found = append(found, keysBelow(whole, place+"/"+formOf(one), one)...)
				case string:
					found = append(found, place+map[string]string{"required": " always has ", "enum": " can be ", "type": ": "}[name]+one)
				}
			}
		case map[string]any:
			if name == "properties" {
				for key, below := range value {
					found = append(found, keysBelow(whole, place+"/"+key, below.(map[string]any))...)
				}
			} else if name != "$defs" {
				found = append(found, keysBelow(whole, place+"/"+name, value)...)
			}
		}
	}
	return found
}

// formOf returns the name of one of several forms that an object can have.
func formOf(schema map[string]any) string {
	ref, _ := schema["$ref"].(string)
	return strings.TrimPrefix(ref, "#/$defs/")
}

// schemaMajor returns the first number of a schema's version, or "" for other files.
func schemaMajor(text []byte) string {
	id := regexp.MustCompile(`"\$id": "[^"]*/schema/(\d+)\.`).FindSubmatch(text)
	if id == nil {
		return ""
	}
	return string(id[1])
}
