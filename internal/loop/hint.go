package loop

import (
	"errors"
	"fmt"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/table"
)

// Wrap adds context to an error: the step, the kind and name of its object, such as a lock, and a hint if there is one.
func Wrap(step, kind, name, tableName string, err error) error {
	if hint := Hint(err); hint != "" {
		return fmt.Errorf("spindle: %s: %s %q in table %s: %w (%s)", step, kind, name, tableName, err, hint)
	}
	return fmt.Errorf("spindle: %s: %s %q: %w", step, kind, name, err)
}

// Hint returns advice on how to fix an error, or "" if there is none.
func Hint(err error) string {
	if errors.Is(err, fence.ErrFenced) || errors.Is(err, table.ErrSuperseded) {
		return ""
	}
	if table.SessionLost(err) {
		return "the Spanner client has lost its session, which happens when an emulator is restarted: create a new client"
	}
	if table.ClientClosed(err) {
		return "the Spanner client was closed while it was in use: wait for done before you close it"
	}
	if table.DatabaseMissing(err) {
		return "check the database path that was given to the Spanner client"
	}
	if !elect.Lasting(err) {
		return "" // for example, the error is about a transaction rather than the table
	}
	switch spanner.ErrCode(err) {
	case codes.NotFound:
		return "check that the table exists; ddl.Create creates it"
	case codes.InvalidArgument, codes.FailedPrecondition:
		return "check that it is a lock table; ddl.Verify says what is wrong with it"
	case codes.PermissionDenied, codes.Unauthenticated:
		return "the client needs roles/spanner.databaseUser on the database"
	}
	return ""
}
