package main

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/testkit/emulator"
)

const dialect = databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL

var lockTable = ddl.Statement(dialect, "locktable")

// newDatabase returns the path of a database with a lock table, and what more statements create, in an emulator of its own: an emulator runs one read-write
// transaction at a time, and tests run side by side.
func newDatabase(t testing.TB, more ...string) (e *emulator.Emulator, path string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	e, err := emulator.Open(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	path, err = e.CreateDatabase(ctx, dialect, append([]string{lockTable}, more...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.DropDatabase(context.Background(), path) }) // of one that was not started here
	return e, path
}
