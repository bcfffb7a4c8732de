package agent

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// Clients are written by what spindle schema agent prints, and it is compared from version to version. So it is made from
// the code, which has each request with its parameters, each code with its status, and each event and key.
func TestTheDescriptionIsMadeFromTheCode(t *testing.T) {
	made, err := json.MarshalIndent(description(t), "", "  ")
	require.NoError(t, err)
	made = append(made, '\n')
	require.False(t, strings.Contains(string(made), `"description": ""`), "a path, a parameter or an event has no comment")
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", made, 0o644))
	}
	recorded, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	assert.Equal(t, string(recorded), string(made), "to make it again: go generate ./cmd/spindle/internal/agent")
}

type object = map[string]any

// about finds the comments of lines that match, by the text in the first group. The last group is the comment.
func about(source, pattern string) map[string]string {
	found := map[string]string{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(source, -1) {
		found[m[1]] = m[len(m)-1]
	}
	return found
}

func description(t *testing.T) object {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var source string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			source += string(text)
		}
	}
	return object{
		"openapi": "3.1.0",
		"info": object{"title": "spindle agent", "version": "1.0",
			"description": "Requests over the agent's Unix socket. They have no bodies. Ignore events and keys that you don't know."},
		"paths": paths(t, source),
		"components": object{
			"parameters": parametersOf(source),
			"responses":  object{"problem": object{"description": "the request was refused", "content": content("application/problem+json", object{"$ref": "#/components/schemas/problem"})}},
			"schemas":    object{"line": lineSchema(t, source), "hold": keys(source, reflect.TypeFor[holdJSON]()), "problem": problems(t, source)},
		},
	}
}

// parametersOf describes the parameters of requests for locks.
func parametersOf(source string) object {
	all := object{}
	for name, comment := range about(source, `(?m)^\t\t?"(\w+)", +// (.*)$`) {
		all[name] = object{"name": name, "in": "query", "required": name == "name" || name == "slots", "description": comment, "schema": object{"type": "string"}}
	}
	return all
}

func content(kind string, schema object) object { return object{kind: object{"schema": schema}} }

func paths(t *testing.T, source string) object {
	all := object{}
	add := func(method, path, about string, parameters []any, answer object) {
		if all[path] == nil {
			all[path] = object{}
		}
		for _, id := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
			parameters = append(parameters, object{"name": id[1], "in": "path", "required": true, "description": "the hold of the line hello", "schema": object{"type": "string"}})
		}
		all[path].(object)[strings.ToLower(method)] = object{"description": about, "parameters": parameters,
			"responses": object{"200": answer, "default": object{"$ref": "#/components/responses/problem"}}}
	}
	kinds := about(source, `(?m)^\t\w+ += "(\w+)" +// (.*)$`)
	for kind, names := range parameters {
		var takes []any
		for _, name := range append(slices.Clone(everyKind), names...) {
			takes = append(takes, object{"$ref": "#/components/parameters/" + name})
		}
		add("POST", "/v1/"+kind, kinds[kind], takes,
			object{"description": "a line for each event, until the hold is over", "content": content("application/x-ndjson", object{"$ref": "#/components/schemas/line"})})
	}
	handled := regexp.MustCompile(`(?m)^\tmux\.Handle\("(GET|POST) ([^"]+)".*?(?: // (?:\?(\S+): )?(.*))?$`).FindAllStringSubmatch(source, -1)
	require.Greater(t, len(handled), 10)
	for _, m := range handled {
		answer := object{"description": "done"}
		if m[2] == "/v1/holds/{id}" {
			answer["content"] = content("application/json", object{"$ref": "#/components/schemas/hold"})
		}
		if m[4] == "" && all[m[2]] != nil {
			continue // also for probes
		}
		takes := []any{}
		for _, name := range regexp.MustCompile(`\w+`).FindAllString(m[3], -1) {
			takes = append(takes, object{"name": name, "in": "query", "required": name != "drain", "schema": object{"type": "string"}})
		}
		add(m[1], m[2], m[4], takes, answer)
	}
	return all
}

// lineSchema describes a line by its keys and events. Each event that the code sends is in the comment of line.
func lineSchema(t *testing.T, source string) object {
	comments := about(source, `(?m)^//   - (\w+): (.*)$`)
	var events []any
	sent := regexp.MustCompile(`(?:Event: |\.Event(?:, \w+\.\w+)? = )"(\w+)"`).FindAllStringSubmatch(source, -1)
	var names []string
	for _, m := range sent {
		names = append(names, m[1])
	}
	slices.Sort(names)
	names = slices.Compact(names)
	require.Len(t, names, 11)
	for _, name := range names {
		events = append(events, object{"const": name, "description": comments[name]})
	}
	line := keys(source, reflect.TypeFor[line]())
	line["properties"].(object)["event"] = object{"oneOf": events}
	reasons := []string{"stepdown", "handover", "agent-stops"}
	for _, r := range reasons {
		require.Contains(t, source, `"`+r+`"`)
	}
	for _, r := range reasonNames() {
		if !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
	}
	line["properties"].(object)["reason"].(object)["enum"] = reasons
	return line
}

func reasonNames() (names []string) {
	for _, r := range reasons {
		names = append(names, r.name)
	}
	return names
}

// keys describes a struct, with the comments of its fields.
func keys(source string, of reflect.Type) object {
	declared := regexp.MustCompile(`(?ms)^type ` + of.Name() + ` struct \{$.*?^\}`).FindString(source)
	comments := about(declared, "(?m)^\t\\w+ .*`json:\"(\\w+).*?\"`(?: +// (.*))?$")
	properties, required := object{}, []string{}
	for i := range of.NumField() {
		f := of.Field(i)
		if !f.IsExported() {
			continue
		}
		key, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if rest == "" {
			required = append(required, key)
		}
		described := kindOf(source, f.Type)
		if comments[key] != "" {
			described["description"] = comments[key]
		}
		properties[key] = described
	}
	return object{"type": "object", "properties": properties, "required": required}
}

func kindOf(source string, of reflect.Type) object {
	switch of.Kind() {
	case reflect.Pointer:
		return kindOf(source, of.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": kindOf(source, of.Elem())}
	case reflect.Struct:
		return keys(source, of)
	case reflect.Map:
		return object{"type": "object"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Bool:
		return object{"type": "boolean"}
	}
	return object{"type": "string"}
}

// problems lists the codes of each status.
func problems(t *testing.T, source string) object {
	codes := map[int][]string{http.StatusConflict: {"busy", "passed"}} // see status.refused
	found := regexp.MustCompile(`wrong\(http\.Status(\w+), "([a-z-]+)"`).FindAllStringSubmatch(source, -1)
	require.Greater(t, len(found), 20)
	for _, m := range found {
		codes[statusOf(m[1])] = append(codes[statusOf(m[1])], m[2])
	}
	var all []any
	for status := range 600 {
		if slices.Sort(codes[status]); codes[status] != nil {
			all = append(all, object{"properties": object{"status": object{"const": status}, "code": object{"enum": slices.Compact(codes[status])}}})
		}
	}
	p := keys(source, reflect.TypeFor[problem]())
	p["oneOf"] = all
	return p
}

// statusOf returns the status that package net/http calls so.
func statusOf(name string) int {
	for status := 400; status < 600; status++ {
		if strings.ReplaceAll(http.StatusText(status), " ", "") == name {
			return status
		}
	}
	return 0
}
