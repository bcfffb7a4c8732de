package table

import (
	"context"
	"fmt"
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A term ends immediately if its lease row is missing, but not if the client has lost its session.
func TestOnlyAMissingRowTableOrDatabaseEndsATerm(t *testing.T) {
	const path = "projects/p/instances/i/databases/d"
	kind := func(name string) string { return "type.googleapis.com/google.spanner." + name }
	for _, e := range []struct {
		code     codes.Code
		message  string
		resource string
		missing  bool
	}{
		{codes.NotFound, "Row [mylock_1763645616123456] in table locktable is missing. Row cannot be updated.", "", true},
		{codes.NotFound, "Table locktable: Row {String(\"mylock_1763645616123456\")} not found.", "", true},
		{codes.NotFound, "Row [my\nlock_1763645616123456] in table locktable is missing", "", true},
		{codes.NotFound, "Table not found: locktable", "", true},
		{codes.InvalidArgument, "Table not found: locktable", "", true},
		{codes.NotFound, "Database not found: " + path, "", true},
		{codes.NotFound, "Database not found: " + path, kind("admin.database.v1.Database"), true},
		{codes.NotFound, "Instance not found: projects/p/instances/i", kind("admin.instance.v1.Instance"), true},

		{codes.NotFound, "Session not found: " + path + "/sessions/s", kind("v1.Session"), false},
		{codes.NotFound, "Session not found: " + path + "/sessions/s", "", false},
		{codes.NotFound, "Session was concurrently deleted", "", false},
		{codes.NotFound, "Transaction not found: 17", "", false},
		{codes.NotFound, "Row [x] in table locktable is missing", kind("v1.Session"), false}, // the kind is the stronger sign
		{codes.NotFound, "Session not found: a row of it is missing", "", false},
		{codes.NotFound, "", "", false},
		{codes.InvalidArgument, "Invalid transaction ID", "", false},
		{codes.FailedPrecondition, "Table not found: locktable", "", false},
		{codes.Unavailable, "Row [x] in table locktable is missing", "", false},
	} {
		st := status.New(e.code, e.message)
		if e.resource != "" {
			var err error
			st, err = st.WithDetails(&errdetails.ResourceInfo{ResourceType: e.resource})
			require.NoError(t, err)
		}
		for how, err := range map[string]error{
			"as it comes":          st.Err(),
			"of the client":        spanner.ToSpannerError(st.Err()),
			"wrapped by us":        fmt.Errorf("heartbeat: %w", st.Err()),
			"of the client, wraps": fmt.Errorf("heartbeat: %w", spanner.ToSpannerError(st.Err())),
		} {
			assert.Equal(t, e.missing, Missing(err), "%s, %s: %v %s", e.message, how, e.code, e.resource)
		}
	}
	assert.False(t, Missing(nil))
	assert.False(t, Missing(context.Canceled))
}

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

// Every transaction inserts, updates and deletes in accordance with the rows that it read. If one is refused, whatever
// the error, another transaction was first.
func TestACommitIsOvertakenIfARowCameOrWent(t *testing.T) {
	for _, e := range []struct {
		code      codes.Code
		message   string
		overtaken bool
	}{
		{codes.Aborted, "Transaction was aborted.", true},
		{codes.AlreadyExists, "Row [mylock] in table locktable already exists", true},
		{codes.NotFound, "Row [mylock] in table locktable is missing. Row cannot be updated.", true},
		{codes.NotFound, "Table not found: locktable", false},
		{codes.NotFound, "Transaction not found: 17", false},
		{codes.NotFound, "Session not found: s", false},
		{codes.Unavailable, "later", false},
		{codes.FailedPrecondition, "the value is longer than the column", false},
	} {
		assert.Equal(t, e.overtaken, overtaken(spanner.ToSpannerError(status.Error(e.code, e.message))), e.message)
	}
	assert.False(t, overtaken(nil))
}
