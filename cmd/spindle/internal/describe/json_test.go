package describe

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// YAML says what the JSON says, whatever is in names, and nothing in it acts on a terminal.
func TestYAMLMeansWhatTheJSONMeans(t *testing.T) {
	for _, name := range []string{"nightly", "yes", "0o7", "1e3", "", " a: b #c", "- x", "2026-11-23", "a\nb\t'\"\\", "\x1b[31m\u202e\u0085\u2028\x7f", "夜間🚀", "\U000e0041", "!!int", "&a *b", "~"} {
		l := operator.Listing{Observation: table.Observation{Name: name, At: commandtest.At(103), Exists: true, Token: 5, Heartbeat: commandtest.At(102), Writer: name}}
		l.LeaseRecord = &table.LeaseRecord{Lease: time.Second, Value: name}
		var want, got any
		var text, document bytes.Buffer
		require.NoError(t, terminal.PrintJSON(&text, JSONOf(l)))
		require.NoError(t, json.Unmarshal(text.Bytes(), &want))
		require.NoError(t, terminal.PrintYAML(&document, JSONOf(l)))
		require.NoError(t, yaml.Unmarshal(document.Bytes(), &got), "%q", document.String())
		again, err := json.Marshal(got)
		require.NoError(t, err)
		assert.JSONEq(t, text.String(), string(again), "%q", document.String())
		for _, r := range document.String() {
			assert.True(t, r == '\n' || strconv.IsGraphic(r), "%q", document.String())
		}
	}
	var b bytes.Buffer
	require.NoError(t, terminal.PrintYAML(&b, struct {
		Name  string   `json:"name"`
		Small float64  `json:"small"`
		None  []string `json:"none"`
		Some  []string `json:"some"`
	}{"yes", 1e-7, []string{}, []string{"a", "b c"}}))
	assert.Equal(t, "---\nname: \"yes\"\nsmall: 0.0000001\nnone: []\nsome:\n  - a\n  - \"b c\"\n", b.String())
}
