package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
)

// The flags that select a database are checked before it is asked, because what Spanner says of a wrong path helps nobody.
func TestTheFlagsThatSelectADatabaseAreChecked(t *testing.T) {
	const path = "projects/p/instances/i/databases/d"
	for _, c := range []struct {
		o    Database
		says string
	}{
		{Database{Path: path, Table: "t", Timeout: 1}, ""},
		{Database{Path: path, Table: "a.b", Timeout: time.Hour}, ""},
		{Database{Table: "t", Timeout: 1}, "no database given; use --db or set SPINDLE_DB"},
		{Database{Path: "d", Table: "t", Timeout: 1}, `--db "d" is not a database path`},
		{Database{Path: path + "/", Table: "t", Timeout: 1}, "is not a database path"},
		{Database{Path: "/" + path, Table: "t", Timeout: 1}, "is not a database path"},
		{Database{Path: "projects//instances/i/databases/d", Table: "t", Timeout: 1}, "is not a database path"},
		{Database{Path: path, Table: "t"}, "--timeout 0s: must be positive"},
		{Database{Path: path, Table: "t", Timeout: -1}, "--timeout -1ns: must be positive"},
		{Database{Path: path, Timeout: 1}, "--table: "},
		{Database{Path: path, Table: "a;b", Timeout: 1}, "--table: "},
	} {
		err := c.o.Check()
		if c.says == "" {
			assert.NoError(t, err, "%v", c.o)
			continue
		}
		var exit *terminal.Exit
		require.ErrorAs(t, err, &exit, "%v", c.o)
		assert.Equal(t, terminal.Misused, exit.Code)
		assert.ErrorContains(t, err, c.says)
		_, openErr := c.o.Open()
		assert.Equal(t, err, openErr, "a client is created before that")
	}
}

// An error has the hint that helps where the command runs. It is still the error that it was, so that its cause can be told from others,
// and an error that is the command's own says all by itself.
func TestAnErrorOfTheDatabaseHasAHint(t *testing.T) {
	o := &Database{Path: "projects/p/instances/i/databases/d"}
	of := func(c codes.Code, text string) error { return fmt.Errorf("reading: %w", status.Error(c, text)) }
	for _, c := range []struct {
		err             error
		cloud, emulator string
	}{
		{of(codes.Unavailable, "away"), "the database can't be reached", "the database can't be reached; check that the emulator at SPANNER_EMULATOR_HOST=localhost:9010 is running"},
		{fmt.Errorf("reading: %w", context.DeadlineExceeded), "the database can't be reached", "the database can't be reached; check that the emulator at SPANNER_EMULATOR_HOST=localhost:9010 is running"},
		{of(codes.NotFound, "Database not found: d"), table.NoDatabase.Command, "check --db, or create the database on the emulator with spindle init --create"},
		{of(codes.NotFound, "Table not found: t"), table.NoTable.Command, table.NoTable.Command},
		{of(codes.PermissionDenied, "no"), table.NoPermission.Command, table.NoPermission.Command},
		{of(codes.ResourceExhausted, "full"), table.Exhausted.Command, table.Exhausted.Command},
		{errors.New("something else"), "", ""},
		{of(codes.Aborted, "again"), "", ""},
		{context.Canceled, "", ""},
	} {
		for emulator, hint := range map[string]string{"": c.cloud, "localhost:9010": c.emulator} {
			t.Setenv("SPANNER_EMULATOR_HOST", emulator)
			err := o.Explain(c.err)
			assert.ErrorIs(t, err, c.err)
			if hint == "" {
				assert.Equal(t, c.err, err)
				continue
			}
			assert.EqualError(t, err, c.err.Error()+"\n  "+hint)
		}
		own := &terminal.Exit{Code: 3, Err: c.err}
		assert.Equal(t, error(own), o.Explain(own))
		wrapped := fmt.Errorf("doing: %w", own)
		assert.Equal(t, wrapped, o.Explain(wrapped))
	}
	assert.NoError(t, o.Explain(nil))
	assert.EqualError(t, o.Explain(fmt.Errorf("claiming: %w", &ddl.SchemaError{Table: "t", Problems: []string{"no column a", "no column b"}})),
		"table t in projects/p/instances/i/databases/d is not a lock table: no column a; no column b\n  to create a missing table, run spindle init; to see the required schema, run spindle init --print")
	assert.True(t, Passing(commandtest.Away))
	assert.False(t, Passing(of(codes.PermissionDenied, "no")))
	assert.False(t, Passing(nil))
}

// Credentials that can't be read are called so: otherwise all that the user sees is "unexpected end of JSON input".
func TestCredentialsThatCanNotBeReadAreCalledSo(t *testing.T) {
	t.Setenv("SPANNER_EMULATOR_HOST", "")
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for file, says := range map[string]string{empty: "unexpected end of JSON input", empty + ".json": "no such file or directory"} {
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
		o := &Database{Path: "projects/p/instances/i/databases/d", Table: "t", Timeout: time.Hour}
		_, err := o.Open()
		assert.ErrorContains(t, err, says+"\n  "+table.NoCredentials.Command)
		assert.Equal(t, err, o.WithTable(t.Context(), nil))
	}
}

// A task on the table has until the timeout, or less if its caller ends. What it returns has a hint, and no client is left behind.
func TestATaskOnTheTableHasUntilTheTimeout(t *testing.T) {
	t.Setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:1")
	o := &Database{Path: "projects/p/instances/i/databases/d", Table: "t", Timeout: time.Hour}
	type key struct{}
	var db *spanner.Client
	err := o.WithTable(context.WithValue(t.Context(), key{}, "of the caller"), func(ctx context.Context, tab table.Table) error {
		assert.Equal(t, "of the caller", ctx.Value(key{}))
		end, limited := ctx.Deadline()
		assert.True(t, limited)
		assert.InDelta(t, time.Hour, time.Until(end), float64(time.Minute))
		_ = tab.Store.(table.Via)(ctx, "step", func(_ context.Context, s table.Store) error {
			db = s.(table.Spanner).DB
			assert.Equal(t, "t", s.(table.Spanner).Table)
			return nil
		})
		assert.False(t, closed(db))
		return commandtest.Away
	})
	assert.ErrorIs(t, err, commandtest.Away)
	assert.ErrorContains(t, err, "check that the emulator at SPANNER_EMULATOR_HOST=127.0.0.1:1 is running")
	assert.True(t, closed(db))
	ended, end := context.WithCancel(t.Context())
	end()
	assert.ErrorIs(t, o.WithTable(ended, func(ctx context.Context, _ table.Table) error { return ctx.Err() }), context.Canceled)
	o.Path = "d"
	assert.ErrorContains(t, o.WithTable(t.Context(), func(context.Context, table.Table) error {
		assert.Fail(t, "it begins without a database")
		return nil
	}), "is not a database path")
}
