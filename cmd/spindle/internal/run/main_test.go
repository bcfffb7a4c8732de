package run

import (
	"flag"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/health"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

// TestMain lets this program be what exec and guard start beside their commands. What exec and guard say is shown with -v.
func TestMain(m *testing.M) {
	if code, is := Beside(os.Args[1:]); is {
		os.Exit(code)
	}
	subprocess.Heed()
	if flag.Parse(); !testing.Verbose() {
		terminal.Stderr = terminal.NewJournal(io.Discard)
	}
	os.Exit(m.Run())
}

const lease = 10 * time.Second

// reportsOn returns what exec and guard have in common, without a command line.
func reportsOn(store table.Store, name, id string, lease time.Duration) reports {
	db := &database.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable", Timeout: time.Second}
	config := options.New([]options.Option{func(c *options.Config) { c.Lease, c.ID, c.Store = lease, id, store }})
	return reports{lockCommand: lockCommand{Database: db, name: name, id: id, quiet: true}, probe: health.New("locktable", name, hookNames[:], nil, nil),
		waits: waits{config: config, candidate: config.Candidate(table.Table{Store: store}, name)}}
}

// free reports whether the lock was released.
func free(store *memstore.Store) bool {
	row, exists := store.Rows()["job"]
	return exists && row.Heartbeat.IsZero() && row.Writer == ""
}

// tokenIn returns the token of a lock.
func tokenIn(store *memstore.Store, name string) table.Token {
	return table.TokenAt(store.Rows()[name].Token)
}

// takeAway releases the lock as spindle release does.
func takeAway(t *testing.T, store *memstore.Store) {
	require.NoError(t, table.Table{Store: store}.Release(t.Context(), tokenIn(store, "job"), "job"))
}

func ask(tb testing.TB, store *memstore.Store, name string) {
	require.NoError(tb, table.Table{Store: store}.Ask(tb.Context(), table.ByOperator, name, tokenIn(store, name)))
}
