//go:build versions && unix

package versions

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/spindletest"
)

// A table that one version created is a lock table of the other. Neither changes it.
func TestEachVersionUsesTheTableOfTheOther(t *testing.T) {
	t.Parallel()
	t.Run("the previous version's", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, lease)
		s.table = "former"
		s.create("previous")
		assert.Contains(t, s.command(0, "init"), "former")
		s.command(0, "doctor")
		a := s.start("elect", "this")
		a.writes(a.gets(), "wrote")
	})
	t.Run("this version's", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, lease)
		s.table = "latter"
		s.command(0, "init")
		s.create("previous") // it verifies the table
		a := s.start("elect", "previous")
		a.writes(a.gets(), "wrote")
	})
}

// A table of a future version may have more columns. If they are optional, this version works with it. If it would
// have to write them, init and doctor refuse the table, and say what is wrong.
func TestATableOfAFutureVersionIsUsedOrRefused(t *testing.T) {
	t.Parallel()
	const columns = `name STRING(MAX) NOT NULL, heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true),
		token TIMESTAMP OPTIONS (allow_commit_timestamp=true), writer STRING(MAX), future INT64`
	s := newScene(t, lease)
	s.db = spindletest.New(t, spindletest.WithDDL(
		"CREATE TABLE optional ("+columns+") PRIMARY KEY (name)", "CREATE TABLE required ("+columns+" NOT NULL) PRIMARY KEY (name)"))

	s.table = "optional"
	s.command(0, "init")
	s.command(0, "doctor")
	for _, version := range []string{"this", "previous"} {
		s.lock = version // nothing to wait for
		p := s.start("elect", version)
		p.gets()
		p.end()
	}

	s.table = "required"
	const problem = "inserts omit column future, so it must be nullable, have a default, or be dropped"
	assert.Contains(t, s.command(1, "init"), problem)
	assert.Contains(t, s.command(3, "doctor"), problem)
}

// create creates the table as a program of that version does.
func (s *scene) create(version string) {
	c := exec.Command(program(version), "create", s.db.Path, s.table)
	c.Env = append(c.Environ(), s.db.Env()...)
	out, err := c.CombinedOutput()
	require.NoError(s, err, "%s", out)
}

// command runs a subcommand of this version, and returns what it printed.
func (s *scene) command(code int, args ...string) string {
	s.Helper()
	c := exec.Command(spindle(), append(args, "--db", s.db.Path, "--table", s.table)...)
	c.Env = append(os.Environ(), s.db.Env()...)
	out, _ := c.CombinedOutput()
	assert.Equal(s, code, c.ProcessState.ExitCode(), "%v: %s", args, out)
	return string(out)
}
