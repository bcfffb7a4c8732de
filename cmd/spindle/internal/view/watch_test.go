package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// A line of watch is for people, or an object for programs. One that can't be written ends watch.
func TestWatchPrintsALineForEachChange(t *testing.T) {
	l := commandtest.Held("a\x1b", "me", commandtest.At(90), commandtest.At(103), time.Minute)
	c := changed(commandtest.At(90.0625).In(time.FixedZone("", 3600)), l, "held by me")
	for format, want := range map[string]string{"table": "1970-01-01T00:01:30.062Z  $'a\\x1b'  held by me\n", "json": ""} {
		w := &watching{f: terminal.Format{Choice: terminal.Choice{Value: format}}}
		var b bytes.Buffer
		require.NoError(t, w.line(&terminal.Terminal{Writer: &b}, c))
		if want == "" {
			var j model.LockJSON
			require.NoError(t, json.Unmarshal(b.Bytes(), &j))
			assert.Equal(t, []any{"a\x1b", operator.Held, "me"}, []any{j.Name, j.State, j.Holder})
		} else {
			assert.Equal(t, want, b.String())
		}
		assert.ErrorIs(t, w.line(&terminal.Terminal{Writer: full{}}, c), errFull)
	}
}

// The commands that show locks check their arguments before they connect to the database. The exit code says that the command line is wrong,
// so that a script does not try it again.
func TestACommandThatShowsLocksRefusesWrongArguments(t *testing.T) {
	const fine = "no database given"
	for _, c := range []struct{ command, wrong string }{
		{"watch", fine}, {"watch a", fine}, {"watch --prefix a", fine}, {"watch --every 10ms", fine}, {"watch a --prefix b", `give either the lock "a" or --prefix "b", not both`},
		{"watch --every 9.999999ms", "--every 9.999999ms: must be at least 10ms"}, {"watch --every -1s", "must be at least 10ms"}, {"watch a b", "watch takes at most one lock name"}, {"watch x_1763645616123456", "could be mistaken for the lease row"},
		{"ls", fine}, {"ls a", fine}, {"ls --group a", fine}, {"ls --watch", fine}, {"ls a b", "ls takes at most one prefix"}, {"ls a --group b", "give only one of"}, {"ls --watch --group b", "to watch a group"},
		{"status", "the name of one lock"}, {"status a", fine}, {"status a b", "the name of one lock"}, {"status a --id x --token 7", fine}, {"status --expect a,b", fine}, {"status x_1763645616123456", "could be mistaken for the lease row"},
		{"status a --expect b", `give either the lock "a" or --expect, not both`}, {"status a b --expect b", "the name of one lock"}, {"status --expect a --id x", "check a single lock"}, {"status --expect a --token 7", "check a single lock"}, {"status --expect x_1763645616123456", "--expect: "},
		{"members", "the name of one group"}, {"members a", fine}, {"members a/", fine}, {"members a b", "the name of one group"}, {"members \x00", "group "},
	} {
		o := &database.Database{Table: "locktable", Timeout: time.Second}
		name, rest, _ := strings.Cut(c.command, " ")
		command := map[string]*cobra.Command{"watch": NewWatch(o), "ls": NewLs(o), "status": NewStatus(o), "members": NewMembers(o)}[name]
		command.SetArgs(strings.Fields(rest))
		command.SilenceErrors, command.SilenceUsage = true, true
		var err error
		out, said := captured(t, func() { err = command.Execute() })
		assert.Empty(t, out+said, c.command)
		assert.ErrorContains(t, err, c.wrong, c.command)
		if e := (*terminal.Exit)(nil); errors.As(err, &e) {
			assert.Equal(t, terminal.Misused, e.Code, c.command)
		} else { // what cobra checks
			assert.Regexp(t, fine+"|takes at most one|the name of one|could be mistaken", err.Error(), c.command)
		}
	}
}
