package operate

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

// prints returns what a function prints, to standard output and to standard error.
func prints(t *testing.T, do func() error) (out, said string, err error) {
	t.Helper()
	dir := t.TempDir()
	defer func(out, said *os.File) { os.Stdout, os.Stderr = out, said }(os.Stdout, os.Stderr)
	read := func(name string, f **os.File) func() string {
		path := filepath.Join(dir, name)
		file, err := os.Create(path)
		require.NoError(t, err)
		*f = file
		return func() string {
			require.NoError(t, file.Close())
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			return string(text)
		}
	}
	stdout, stderr := read("out", &os.Stdout), read("err", &os.Stderr)
	err = do()
	return stdout(), stderr(), err
}

func formatted(t *testing.T, format string) (f terminal.Format) {
	f.Flag(pflag.NewFlagSet("", pflag.ContinueOnError))
	require.NoError(t, f.Set(format))
	return f
}

// Output that can't be written is a failure: a script would continue with half of a statement, or of a list of names.
func TestNoOutputIsLostWithoutAFailure(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /dev/full")
	}
	synctest.Test(t, func(t *testing.T) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		defer full.Close()
		for _, format := range []string{"table", "json"} {
			o := &database.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable", Timeout: timeout}
			prune, handover := &pruning{Database: o, f: formatted(t, format)}, &handover{Database: o, f: formatted(t, format)}
			dry := &pruning{Database: o, f: prune.f, dryRun: true}
			tab := table.Table{Store: &memstore.Store{}}
			require.NoError(t, tab.Release(t.Context(), steps.Hold(t, tab, "a", time.Hour), "a"))
			for name, print := range map[string]func() error{
				"the names of prune":  func() error { return dry.run(t.Context(), tab) },
				"the totals of prune": func() error { return prune.run(t.Context(), table.Table{Store: &memstore.Store{}}) },
				"a handover":          func() error { return handover.print(spindle.Handover{}) },
				"a statement": func() error {
					return printSchema(o, databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL)
				},
			} {
				_, _, err := prints(t, func() error {
					os.Stdout = full
					return print()
				})
				assert.ErrorIs(t, err, syscall.ENOSPC, "%s, %s", name, format)
			}
		}
	})
}
