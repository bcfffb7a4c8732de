package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
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

// A printed is what a command prints: objects of one of the types.
type printed struct {
	command, about string
	types          []any
}

var allPrinted = []printed{
	{"ls", "spindle ls: one for each lock and group; with --group, one for each member and then for each partition", []any{model.LockJSON{}, model.GroupJSON{}}},
	{"status", "spindle status: one for the lock, or for each lock that --expect names", []any{model.StatusJSON{}}},
	{"watch", "spindle watch: one for each change", []any{model.LockJSON{}, view.MoveJSON{}}},
	{"members", "spindle members", []any{view.MembersJSON{}}},
	{"doctor", "spindle doctor", []any{doctor.Report{}}},
	{"handover", "spindle handover", []any{operate.HandoverJSON{}}},
	{"release", "spindle release", []any{operate.ReleaseJSON{}}},
	{"prune", "spindle prune", []any{operate.PrunableJSON{}, operate.PrunedJSON{}}},
	{"version", "spindle version", []any{versionJSON{}}},
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

// The schema is made of the types that are printed, and of their comments. A change of it is a change of what programs read
// (docs/stability.md).
func TestTheSchemaIsGeneratedFromWhatIsPrinted(t *testing.T) {
	made := newSchemaOf(t)
	if *update {
		require.NoError(t, os.WriteFile("schema.json", made, 0o644))
	}
	recorded, err := os.ReadFile("schema.json")
	require.NoError(t, err)
	assert.Equal(t, string(recorded), string(made), "to generate it again: go generate ./cmd/spindle/internal/cli")
}

// Programs can check what they read: each value is printed with all its keys, and with the fewest.
func TestWhatIsPrintedIsAsTheSchemaSays(t *testing.T) {
	whole := compiled(t, schemaText)
	for _, p := range allPrinted {
		text, err := schemaFor(p.command)
		require.NoError(t, err)
		schema := compiled(t, text)
		for _, of := range p.types {
			full := reflect.New(reflect.TypeOf(of)).Elem()
			fill(full)
			for _, v := range []any{full.Interface(), least(reflect.TypeOf(of))} {
				b, err := json.Marshal(v)
				require.NoError(t, err)
				object, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
				require.NoError(t, err)
				assert.NoError(t, schema.Validate(object), "spindle %s: %s", p.command, b)
				assert.NoError(t, whole.Validate(object), "spindle %s: %s", p.command, b)
			}
		}
		stray := []byte(`{"name":"a","state":"held","at":"2026-11-23T00:00:00Z","further":1}`)
		object, err := jsonschema.UnmarshalJSON(bytes.NewReader(stray))
		require.NoError(t, err)
		assert.Error(t, schema.Validate(object), "spindle %s: the schema allows keys that it does not know", p.command)
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
	assert.True(t, strings.HasSuffix(readSchema().ID, "/"+schemaVersion))
	assert.Equal(t, "spindle "+schemaVersion, readSchema().Title)
	_, err := schemaFor("exec")
	assert.ErrorContains(t, err, "want doctor, handover, ls")
}

// A reader finds the meaning of each key in the schema, and each command with objects in docs/json.md.
func TestEachKeyIsDescribed(t *testing.T) {
	for name, text := range readSchema().Defs {
		var of struct {
			Properties map[string]struct {
				Description, Ref string
				Enum             []string // words that say what they mean
			}
		}
		require.NoError(t, json.Unmarshal(bytes.ReplaceAll(text, []byte("$ref"), []byte("ref")), &of))
		for key, property := range of.Properties {
			assert.True(t, property.Description != "" || property.Ref != "" || len(property.Enum) > 0, "%s of %s", key, name)
		}
	}
	text, err := os.ReadFile("../../../../docs/json.md")
	require.NoError(t, err)
	assert.Contains(t, string(text), schemaVersion)
	for _, command := range schemaCommands() {
		assert.Contains(t, string(text), "`"+command+"`")
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
		case strings.Contains(f.Tag.Get("json"), ",omit"):
			v.Field(i).SetZero()
		}
	}
}
