package agent

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// A message of the agent has all its attributes, those of the logger and those of the record, in either format. What is below the level
// is left out: the locks log each of their steps, and the agent only their warnings.
func TestAMessageHasAllItsAttributes(t *testing.T) {
	said := commandtest.Captured(t)
	log := slog.New(journal{least: slog.LevelInfo})
	hold := log.With("kind", "locks", "names", []string{"a"})
	tell := func() {
		hold.Debug("nobody reads this")
		slog.New(journal{least: slog.LevelWarn}).Info("nor this")
		hold.Info("held", "token", 7, "more", true)
		hold.WithGroup("group").Warn("lost")
	}
	tell()
	assert.Equal(t, "spindle: held: kind=locks names=[a] token=7 more=true\nspindle: lost: kind=locks names=[a]\n", said.String())
	said.Reset()
	require.NoError(t, terminal.Stderr.Format.Set("json"))
	tell()
	var all []map[string]any
	for d := json.NewDecoder(strings.NewReader(said.String())); d.More(); {
		var m map[string]any
		require.NoError(t, d.Decode(&m))
		delete(m, "time")
		all = append(all, m)
	}
	assert.Equal(t, []map[string]any{
		{"level": "INFO", "msg": "held", "kind": "locks", "names": []any{"a"}, "token": 7., "more": true},
		{"level": "WARN", "msg": "lost", "kind": "locks", "names": []any{"a"}},
	}, all)
	require.NoError(t, terminal.Stderr.Format.Set("text"))
	said.Reset()
	base := hold.With("hold", 1) // its slice has room for one more
	first, second := base.With("of", "first"), base.With("of", "second")
	first.Info("held")
	second.Info("held")
	hold.Info("held")
	assert.Equal(t, "spindle: held: kind=locks names=[a] hold=1 of=first\nspindle: held: kind=locks names=[a] hold=1 of=second\nspindle: held: kind=locks names=[a]\n", said.String(), "loggers share nothing")
}
