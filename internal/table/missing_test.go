package table

import (
	"context"
	"fmt"
	"testing"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Only a lease row in the lock table counts as an application's fence, and not a row of the application itself.
func TestOnlyAMissingLeaseRowIsAFence(t *testing.T) {
	const row = "mylock_1763645616123456"
	for _, e := range []struct {
		code    codes.Code
		message string
		table   string
		fence   bool
	}{
		{codes.NotFound, "Row [" + row + "] in table locktable is missing. Row cannot be updated.", "locktable", true},
		{codes.NotFound, "Row [" + row + "] in table LockTable is missing. Row cannot be updated.", "locktable", true},
		{codes.NotFound, "Row [" + row + "] in table locktable is missing", "public.locktable", true},
		{codes.NotFound, "Row [" + row + "] in table \"locktable\" is missing", "locktable", true},
		{codes.NotFound, "Row [" + row + "] in table app.locks is missing", "app.locks", true},
		{codes.NotFound, "Row [my\nlock] in table x is missing_1763645616123456] in table locktable is missing", "locktable", true},
		{codes.NotFound, "Table locktable: Row {String(\"" + row + "\")} not found.", "locktable", true},
		{codes.NotFound, "Table locktable: Row {String('a\"b]\\nc_1763645616123456')} not found.", "locktable", true},

		{codes.NotFound, "Row [" + row + "] in table orders is missing. Row cannot be updated.", "locktable", false},
		{codes.NotFound, "Row [" + row + "] in table locktable is missing] in table orders is missing.", "locktable", false},
		{codes.NotFound, "Table orders: Row {String(\"" + row + "\")} not found.", "locktable", false},
		{codes.NotFound, "Table orders: Row {String(\"Table locktable: Row {String(\\\"" + row + "\")} not found.", "locktable", false},
		{codes.NotFound, "Row [" + row + "] in table app.locktable is missing.", "locktable", false},
		{codes.NotFound, "Row [mylock] in table locktable is missing.", "locktable", false}, // a lock's own row
		{codes.NotFound, "Table locktable: Row {String(\"mylock\")} not found.", "locktable", false},
		{codes.NotFound, "Table not found: locktable", "locktable", false},
		{codes.NotFound, "Session not found: s", "locktable", false},
		{codes.Unavailable, "Row [" + row + "] in table locktable is missing.", "locktable", false},
		{codes.AlreadyExists, "Row [" + row + "] in table locktable already exists", "locktable", false},
	} {
		for how, err := range map[string]error{
			"as it comes":   status.Error(e.code, e.message),
			"of the client": spanner.ToSpannerError(status.Error(e.code, e.message)),
			"wrapped":       fmt.Errorf("transfer: %w", spanner.ToSpannerError(status.Error(e.code, e.message))),
		} {
			assert.Equal(t, e.fence, LeaseMissing(err, e.table), "%s: %v %s", how, e.code, e.message)
		}
	}
	assert.False(t, LeaseMissing(nil, "locktable"))
	assert.False(t, LeaseMissing(context.Canceled, "locktable"))
}

// The fence in SQL of a lock that is not held updates no row, so it is not empty: it names a lease row that no lock has.
// Spanner would refuse an empty one. The agent also takes the texts that it sends to programs from this statement.
func TestTheFenceInSQLIsAStatementEvenIfTheLockIsNotHeld(t *testing.T) {
	for dialect, sql := range map[databasepb.DatabaseDialect]string{
		databasepb.DatabaseDialect_DATABASE_DIALECT_UNSPECIFIED: "UPDATE locks SET writer = writer WHERE name = @p1",
		databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL:          "UPDATE locks SET writer = writer WHERE name = @p1",
		databasepb.DatabaseDialect_POSTGRESQL:                   "UPDATE locks SET writer = writer WHERE name = $1",
	} {
		for token, row := range map[Token]string{0: "mylock_0000000000000000", 1763645616123456: "mylock_1763645616123456"} {
			want := spanner.Statement{SQL: sql, Params: map[string]any{"p1": row}}
			assert.Equal(t, want, Spanner{Table: "locks"}.FenceStatement(dialect, "mylock", token))
		}
		assert.Zero(t, Spanner{Table: "lo cks"}.FenceStatement(dialect, "mylock", 1), "no identifier")
	}
}
