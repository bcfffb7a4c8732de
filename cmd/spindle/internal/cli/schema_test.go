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

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/operate"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
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
		var s schemaDocument
		require.NoError(t, json.Unmarshal(text, &s))
		assert.Equal(t, []string{readSchema().ID + "/" + p.command, readSchema().Title + ": spindle " + p.command}, []string{s.ID, s.Title}, "a program that loads two schemas tells them apart")
		for name := range s.Defs {
			assert.Contains(t, string(text), `"#/$defs/`+name+`"`, "what no object has is left out")
		}
		schema := compiled(t, text)
		for _, of := range p.types {
			for _, least := range []bool{false, true} {
				v := reflect.New(reflect.TypeOf(of)).Elem()
				fill(v, least)
				b, err := json.Marshal(v.Interface())
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

// Every command that has --output has a schema, and is in docs/json.md.
func TestEachCommandWithObjectsHasASchema(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/json.md")
	require.NoError(t, err)
	var with []string
	terminal.Commands(newRoot(), func(c *cobra.Command) {
		if c.LocalFlags().Lookup("output") != nil {
			with = append(with, c.Name())
			assert.Contains(t, string(text), "`"+c.Name()+"`")
		}
	})
	assert.ElementsMatch(t, with, schemaCommands())
	assert.Contains(t, string(text), schemaVersion)
	_, err = schemaFor("exec")
	assert.ErrorContains(t, err, "want doctor, handover, ls")
}

// fill gives each field a value that is not empty, and that the schema takes for one of its kind. With least, it leaves out
// the keys that are not always there.
func fill(v reflect.Value, least bool) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1763645616, 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if least && strings.Contains(f.Tag.Get("json"), ",omit") {
				continue
			}
			fill(v.Field(i), least)
			if word, is := map[string]string{"State": "held", "Verdict": "ok", "Schema": schemaVersion, "Notified": model.Notified[0]}[f.Name]; is {
				v.Field(i).SetString(word)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), least)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), least)
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
