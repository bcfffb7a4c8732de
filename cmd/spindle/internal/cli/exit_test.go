package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/agent"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// A script tells by the exit code whether its command line is wrong or the command has failed. Only for a wrong command line, the help is
// recommended, that of the command that is meant, and not to a program that reads objects.
func TestTheExitCodeTellsAMistakeFromAFailure(t *testing.T) {
	t.Setenv("SPINDLE_DB", "")
	for _, c := range []struct {
		args []string
		code int
		says string // with the prefix of a message; "": nothing
		try  string // whose help; "": none
	}{
		{[]string{"version"}, 0, "", ""},
		{[]string{"--version"}, 0, "", ""},
		{[]string{"schema", "ls"}, 0, "", ""},
		{[]string{"ls", "--help"}, 0, "", ""},
		{nil, 0, "", ""},
		{[]string{"fly"}, terminal.Misused, `spindle: unknown command "fly"`, "spindle"},
		{[]string{"exce"}, terminal.Misused, `spindle: unknown command "exce": did you mean exec?`, "spindle"},
		{[]string{"exce", "--name", "n"}, terminal.Misused, `spindle: unknown command "exce": did you mean exec?`, "spindle"},
		{[]string{"--name", "n"}, terminal.Misused, "spindle: unknown flag: --name", "spindle"},
		{[]string{"status", "exce", "--bad"}, terminal.Misused, "spindle: unknown flag: --bad", "spindle status"},
		{[]string{"install"}, terminal.Misused, "spindle: install needs the name of one directory", "spindle install"},
		{[]string{"ls"}, terminal.Misused, "spindle: no database given", "spindle ls"},
		{[]string{"agent", "stepdown", "--within", "soon"}, terminal.Misused, `spindle: --within "soon": must be a duration`, "spindle agent stepdown"},
		{[]string{"schema", "exec"}, terminal.Misused, `spindle: there is no schema for "exec"`, "spindle schema"},
		{[]string{"schema", "exec", "--log-format", "json"}, terminal.Misused, `"level":"ERROR","msg":"there is no schema for \"exec\"`, ""},
		{[]string{"install", "missing"}, terminal.Failed, "spindle: can't install spindle: ", ""},
		{[]string{"man"}, terminal.Misused, "spindle: man needs the name of one directory", "spindle man"},
		{[]string{"man", "/dev/null/man"}, terminal.Failed, "spindle: ", ""},
		{[]string{"install", "missing", "--log-format", "json"}, terminal.Failed, `"level":"ERROR","msg":"can't install spindle: `, ""},
		{[]string{"--worse"}, terminal.Misused, `"level":"ERROR","msg":"unknown flag: --worse"`, ""},
		{[]string{"status", "--worse"}, terminal.Misused, `"level":"ERROR","msg":"unknown flag: --worse"`, ""},
	} {
		format := ""
		if slices.Contains(c.args, "--worse") {
			format = "json"
		}
		t.Setenv("SPINDLE_LOG_FORMAT", format)
		said := &bytes.Buffer{}
		code, tells := 0, ""
		func() {
			defer func(out, err *os.File, journal *terminal.Journal) {
				os.Stdout, os.Stderr, terminal.Stderr = out, err, journal
			}(os.Stdout, os.Stderr, terminal.Stderr)
			terminal.Stderr = terminal.NewJournal(said)
			var err error
			os.Stdout, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			require.NoError(t, err)
			os.Stderr, err = os.Create(filepath.Join(t.TempDir(), "err"))
			require.NoError(t, err)
			code = Main(c.args)
			text, err := os.ReadFile(os.Stderr.Name())
			require.NoError(t, err)
			tells = string(text)
		}()
		assert.Equal(t, c.code, code, "%q", c.args)
		if c.says == "" {
			assert.Empty(t, said.String(), "%q", c.args)
		}
		assert.Contains(t, said.String(), c.says, "%q", c.args)
		want := ""
		if c.try != "" {
			want = "Try: " + c.try + " --help\n"
		}
		assert.Equal(t, want, tells, "%q", c.args)
	}
}

// Each of these commands prints what its help says, and nothing else: programs read it.
func TestTheCommandsWithoutADatabasePrintWhatTheySay(t *testing.T) {
	dir := t.TempDir()
	ls, err := schemaFor("ls")
	require.NoError(t, err)
	for args, want := range map[string]string{
		"schema":         string(schemaText),
		"schema ls":      string(ls) + "\n",
		"schema agent":   string(agent.OpenAPI),
		"version":        versionOf(buildInfo()).String(),
		"install " + dir: fmt.Sprintf("installed spindle %s at %s\n", versionOf(buildInfo()).Version, filepath.Join(dir, programName())),
	} {
		func() {
			defer func(out *os.File) { _, os.Stdout = os.Stdout.Close(), out }(os.Stdout)
			os.Stdout, err = os.Create(filepath.Join(t.TempDir(), "out"))
			require.NoError(t, err)
			assert.Zero(t, Main(strings.Fields(args)), args)
			text, err := os.ReadFile(os.Stdout.Name())
			require.NoError(t, err)
			assert.Equal(t, want, string(text), args)
		}()
	}
}

// A script that keeps what a command prints learns if half of it is missing.
func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	defer func(out *os.File, journal *terminal.Journal) { os.Stdout, terminal.Stderr = out, journal }(os.Stdout, terminal.Stderr)
	os.Stdout, terminal.Stderr = full, terminal.NewJournal(io.Discard)
	for _, line := range []string{"version", "version -o json", "schema", "schema ls", "schema agent", "man /dev/null/man1"} {
		assert.Equal(t, terminal.Failed, Main(strings.Fields(line)), line)
	}
}

// A variable sets its flag in each command that has the flag, whether all commands have it or only this one: a wrong value is a mistake,
// which is found before anything is done.
func TestEachCommandReadsTheVariablesOfItsFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	terminal.Commands(newRoot(), func(c *cobra.Command) {
		check := func(f *pflag.Flag) {
			if !terminal.HasVariable(f) || strings.Contains("string stringSlice stringArray", f.Value.Type()) {
				return
			}
			t.Setenv(terminal.Variable(f), "wrong!")
			want := terminal.Variable(f) + `="wrong!"`
			run := func(args ...string) string {
				root := newRoot()
				root.SetOut(io.Discard)
				root.SetArgs(append(strings.Fields(c.CommandPath())[1:], args...))
				return fmt.Sprint(root.Execute())
			}
			assert.True(t, strings.Contains(run(), want) || strings.Contains(run("x"), want), "%s: %s", c.CommandPath(), want) // some need an argument
			t.Setenv(terminal.Variable(f), "")
		}
		c.LocalFlags().VisitAll(check)
		c.InheritedFlags().VisitAll(check)
	})
}
