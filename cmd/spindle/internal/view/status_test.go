package view

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

// Status succeeds only if it has read that each of the locks is held: a lock of a newer version, which it can't read, is a
// failure that names it, both alone and with --expect. A lock without a holder counts more, because the exit code says so.
func TestStatusFailsForALockThatItCanNotRead(t *testing.T) {
	store := &memstore.Store{}
	now := time.Now().Truncate(time.Microsecond)
	token := now.Add(-time.Second)
	for name, record := range map[string]string{"held": `{"lease":"1h"}`, "newer": `{"v":99}`} {
		require.NoError(t, store.Commit(t.Context(), "test", []table.Write{
			{Name: name, Set: []table.Cell{{Column: table.ColToken, Value: token}, {Column: table.ColHeartbeat, Value: now}, {Column: table.ColWriter, Value: "web-1"}}},
			{Name: table.LeaseKey(name, table.TokenAt(token)), Set: []table.Cell{{Column: table.ColToken, Value: token}, {Column: table.ColWriter, Value: record}}},
		}))
	}
	for _, c := range []struct {
		names []string
		code  int // of terminal.Exit, 0 for success, or -1 for any other error
	}{
		{[]string{"held"}, 0}, {[]string{"newer"}, -1}, {[]string{"free"}, terminal.StatusFree}, {[]string{"held", "newer"}, -1}, {[]string{"newer", "held"}, -1},
		{[]string{"held", "free"}, terminal.StatusFree}, {[]string{"newer", "free"}, terminal.StatusFree},
	} {
		code := func(err error) int {
			var e *terminal.Exit
			switch {
			case err == nil:
				return 0
			case errors.As(err, &e):
				return e.Code
			}
			return -1
		}
		tab, a := table.Table{Store: store}, answer{quiet: true}
		for _, single := range map[int][]bool{1: {false, true}, 2: {false}}[len(c.names)] {
			err := a.run(t.Context(), tab, single, c.names)
			assert.Equal(t, c.code, code(err), "single: %v, %v", single, c.names)
			if c.code == -1 {
				assert.Regexp(t, "^newer: .*newer version", err.Error(), "it names the lock that can't be read: %v", c.names)
			}
		}
	}
}

// Status answers about the lock that is in the table now: whether it is held and, with --id or --token, by whom. A script
// that stops its work because of a wrong exit code, or does not, can't be repaired afterwards. What it prints says the same.
func TestStatusAnswersWhoHoldsTheLock(t *testing.T) {
	const id = "web-1/4711/0d1c"
	held := commandtest.Held("job", id, commandtest.At(90), commandtest.At(100), time.Minute)
	held.Waiters = []table.Ticket{{ID: "w", Time: table.TokenAt(commandtest.At(95))}}
	leaving := held
	leaving.Writer, leaving.LeaseRecord = "", &table.LeaseRecord{Lease: time.Minute, ID: id}
	expired, claimed := held, held
	expired.At, claimed.LeaseRecord = commandtest.At(160), nil
	token := int64(held.Token)
	for _, c := range []struct {
		l    operator.Listing
		id   string
		tok  int64
		code int
	}{
		{held, "", 0, 0}, {held, id, 0, 0}, {held, "", token, 0}, {held, id, token, 0}, {held, "web-1/", 0, 0}, {held, "web-1/4711/", token, 0},
		{held, "web-2/4711/0d1c", 0, terminal.StatusElse}, {held, "", token + 1, terminal.StatusElse}, {held, id, token - 1, terminal.StatusElse}, {held, "web-2/", token, terminal.StatusElse},
		{held, "web-1", 0, terminal.StatusElse}, {held, "web-1/47", 0, terminal.StatusElse}, {held, "eb-1/", 0, terminal.StatusElse}, {held, "/", 0, terminal.StatusElse}, {held, id + "/", 0, terminal.StatusElse}, {held, id + "/x", 0, terminal.StatusElse},
		{leaving, id, token, 0}, {leaving, "web-1/", 0, 0}, {leaving, "web-2/", 0, terminal.StatusElse},
		{expired, "", 0, terminal.StatusFree}, {expired, id, token, terminal.StatusFree}, {claimed, id, token, terminal.StatusFree},
		{commandtest.FreeSince("job", commandtest.At(90)), "", token, terminal.StatusFree}, {operator.Listing{Observation: table.Observation{Name: "job", At: commandtest.At(100)}}, "web-1/", 0, terminal.StatusFree},
	} {
		for _, format := range []string{"table", "json"} {
			a := answer{id: c.id, token: c.tok, f: terminal.Format{Choice: terminal.Choice{Value: format}}}
			code, why := a.verdict(true, []operator.Listing{c.l})
			assert.Equal(t, c.code, code, "%s --id %q --token %d", c.l.State(), c.id, c.tok)
			assert.Equal(t, c.code == terminal.StatusElse, why != nil, "what is printed does not say who was looked for")
			out, said := captured(t, func() { assert.NoError(t, a.print(true, []operator.Listing{c.l})) })
			assert.Empty(t, said)
			if format == "table" {
				assert.Equal(t, model.Sentence(c.l)+model.WaiterLines(c.l)+"\n", out)
				continue
			}
			var want bytes.Buffer
			require.NoError(t, terminal.PrintJSON(&want, model.StatusOf(c.l)))
			assert.Equal(t, want.String(), out)
		}
	}
}

// Status prints what it has been asked to print, and no more: a message for people would break what a program reads, and
// --quiet is for scripts that run from cron. The exit code is the same in each case.
func TestStatusSaysWhyUnlessTheOutputDoesOrItIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		for _, name := range []string{"a", "b", "given"} {
			steps.Hold(t, tab, name, time.Hour)
		}
		seen, err := tab.Observe(t.Context(), "given")
		require.NoError(t, err)
		require.NoError(t, tab.Release(t.Context(), seen[0].Token, "given"))
		const elsewhere, nobody = "a is held, but not by the holder that --id or --token identifies", "no process holds given (released 0.0s ago), never (never claimed, or its row was pruned)"
		for _, c := range []struct {
			single bool
			names  string
			id     string
			code   int
			why    string // in a table
			whyNot string // in JSON
		}{
			{true, "a", "", 0, "", ""}, {true, "a", "x", terminal.StatusElse, elsewhere, ""}, {true, "given", "", terminal.StatusFree, "", ""},
			{false, "a b", "", 0, "", ""}, {false, "a given b never", "", terminal.StatusFree, nobody, nobody}, {false, "a", "", 0, "", ""},
		} {
			for _, format := range []string{"table", "json"} {
				for _, quiet := range []bool{false, true} {
					a := answer{id: c.id, quiet: quiet, f: terminal.Format{Choice: terminal.Choice{Value: format}}}
					var err error
					out, said := captured(t, func() { err = a.run(t.Context(), tab, c.single, strings.Fields(c.names)) })
					assert.Empty(t, said)
					var e *terminal.Exit
					if c.code == 0 {
						assert.NoError(t, err)
					} else if assert.ErrorAs(t, err, &e) {
						assert.Equal(t, c.code, e.Code)
						why := ""
						if e.Err != nil {
							why = e.Err.Error()
						}
						want := map[string]string{"table": c.why, "json": c.whyNot}[format]
						if quiet {
							want = ""
						}
						assert.Equal(t, want, why, "%+v in %s", c, format)
					}
					var want []string // the first words of the lines
					for _, name := range strings.Fields(c.names) {
						want = append(want, map[string]string{"table": name, "json": `{"name":"` + name + `"`}[format])
					}
					if format == "table" && !c.single {
						want = append([]string{"LOCK"}, want...)
					}
					if quiet {
						want = nil
					}
					var got []string
					for line := range strings.Lines(out) {
						if !strings.HasPrefix(line, "  ") {
							got = append(got, strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == ',' })[0])
						}
					}
					assert.Equal(t, want, got, "%+v in %s, quiet: %v", c, format, quiet)
				}
			}
		}
	})
}

// What status could not write is a failure, in each format: a script would otherwise act on half of an answer.
func TestAnAnswerThatCanNotBeWrittenIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		steps.Hold(t, tab, "a", time.Hour)
		to, err := os.Create(filepath.Join(t.TempDir(), "out"))
		require.NoError(t, err)
		require.NoError(t, to.Close())
		defer func(was *os.File) { os.Stdout = was }(os.Stdout)
		os.Stdout = to
		for _, format := range []string{"table", "json"} {
			for _, single := range []bool{false, true} {
				a := answer{f: terminal.Format{Choice: terminal.Choice{Value: format}}}
				assert.ErrorIs(t, a.run(t.Context(), tab, single, []string{"a"}), os.ErrClosed, "%s, single: %v", format, single)
				a.quiet = true
				assert.NoError(t, a.run(t.Context(), tab, single, []string{"a"}))
			}
		}
	})
}
