package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/operate"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/view"
	"github.com/spindle-lock/spindle/doctor"
)

// printed has the types of what each command prints.
var printed = map[string][]any{
	"ls":       {model.LockJSON{}, model.GroupJSON{}},
	"status":   {model.StatusJSON{}},
	"watch":    {model.LockJSON{}, view.MoveJSON{}},
	"members":  {view.MembersJSON{}},
	"doctor":   {doctor.Report{}},
	"handover": {operate.HandoverJSON{}},
	"release":  {operate.ReleaseJSON{}},
	"prune":    {operate.PrunedJSON{}, operate.PrunableJSON{}},
	"version":  {versionJSON{}},
}

func compiled(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("spindle.json", document))
	schema, err := c.Compile("spindle.json")
	require.NoError(t, err)
	return schema
}

// This finds a key that is in the code and not in the schema, even one that is rarely printed: each value is printed with all
// its keys, and with the fewest.
func TestTheSchemaKnowsEachKeyOfTheOutputAndNoOther(t *testing.T) {
	whole := compiled(t, schemaText)
	for command, types := range printed {
		text, err := schemaFor(command)
		require.NoError(t, err)
		schema := compiled(t, text)
		for _, of := range types {
			full := reflect.New(reflect.TypeOf(of)).Elem()
			fill(full)
			for _, v := range []any{full.Interface(), least(reflect.TypeOf(of))} {
				b, err := json.Marshal(v)
				require.NoError(t, err)
				object, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
				require.NoError(t, err)
				assert.NoError(t, schema.Validate(object), "spindle %s: %s", command, b)
				assert.NoError(t, whole.Validate(object), "spindle %s: %s", command, b)
			}
			assert.ElementsMatch(t, keysOf(reflect.TypeOf(of)), keysInSchema(t, command, full.Interface()), "spindle %s: %T", command, of)
		}
		stray := []byte(`{"name":"a","state":"held","at":"2026-11-23T00:00:00Z","further":1}`)
		object, err := jsonschema.UnmarshalJSON(bytes.NewReader(stray))
		require.NoError(t, err)
		assert.Error(t, schema.Validate(object), "spindle %s: the schema allows keys that it does not know", command)
	}
}

// Every command that has --output has a schema, and its types are in the test above.
func TestEachCommandWithObjectsHasASchema(t *testing.T) {
	var with []string
	flags.Commands(newRoot(), func(c *cobra.Command) {
		if c.LocalFlags().Lookup("output") != nil {
			with = append(with, c.Name())
		}
	})
	assert.ElementsMatch(t, with, schemaCommands())
	for _, name := range with {
		assert.NotEmpty(t, printed[name], name)
	}
	assert.True(t, strings.HasSuffix(readSchema().ID, "/"+schemaVersion))
	assert.Equal(t, "spindle "+schemaVersion, readSchema().Title)
	_, err := schemaFor("exec")
	assert.ErrorContains(t, err, "want doctor, handover, ls")
}

// docs/json.md describes for people what the schema describes for programs.
func TestEachKeyIsInTheDocuments(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/json.md")
	require.NoError(t, err)
	assert.Contains(t, string(text), schemaVersion)
	for command, types := range printed {
		assert.Contains(t, string(text), "`"+command+"`")
		for _, of := range types {
			for _, key := range keysOf(reflect.TypeOf(of)) {
				assert.Contains(t, string(text), "| `"+key+"` |", "spindle %s", command)
			}
		}
	}
}

// fill gives each field a value that is not empty, and that the schema takes for one of its kind.
func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1763645616, 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
			if word, is := map[string]string{"State": "held", "Verdict": "ok", "Schema": schemaVersion}[v.Type().Field(i).Name]; is {
				v.Field(i).SetString(word)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("1")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		v.SetInt(1)
	}
}

// least returns a value with only the keys that are always there.
func least(of reflect.Type) any {
	v := reflect.New(of).Elem()
	fill(v)
	empty(v)
	return v.Interface()
}

func empty(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case f.Anonymous:
			empty(v.Field(i))
		case strings.Contains(f.Tag.Get("json"), ",omitempty"):
			v.Field(i).SetZero()
		}
	}
}

func keysOf(of reflect.Type) (keys []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			keys = append(keys, keysOf(f.Type)...)
		} else {
			keys = append(keys, name)
		}
	}
	return keys
}

// keysInSchema returns the keys of the definition, among a command's, that the value matches.
func keysInSchema(t *testing.T, command string, v any) []string {
	t.Helper()
	defs := readSchema().Defs
	type definition struct {
		Properties map[string]any      `json:"properties"`
		AnyOf      []map[string]string `json:"anyOf"`
	}
	var candidates []string
	read := func(name string) (d definition) {
		require.NoError(t, json.Unmarshal(defs[name], &d))
		return d
	}
	candidates = append(candidates, command)
	for _, of := range read(command).AnyOf {
		candidates = append(candidates, strings.TrimPrefix(of["$ref"], "#/$defs/"))
	}
	best, fewest := []string(nil), 1000
	for _, name := range candidates {
		var keys []string
		for key := range read(name).Properties {
			keys = append(keys, key)
		}
		want := keysOf(reflect.TypeOf(v))
		differ := 0
		for _, key := range slices.Concat(keys, want) {
			if !slices.Contains(keys, key) || !slices.Contains(want, key) {
				differ++
			}
		}
		if len(keys) > 0 && differ < fewest {
			best, fewest = keys, differ
		}
	}
	require.NotNil(t, best, fmt.Sprintf("no definition of spindle %s has keys", command))
	return best
}
