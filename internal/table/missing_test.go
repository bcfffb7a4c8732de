package table

import (
	"context"
	"fmt"
	"testing"

	"cloud.google.com/go/spanner"
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
