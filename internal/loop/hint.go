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

// Wrap adds to an error the step, the kind and the name of its object, such as a lock, and a hint if there is one.
func Wrap(step, kind, name, tableName string, err error) error {
	if hint := Hint(err); hint != "" {
		return fmt.Errorf("spindle: %s: %s %q in table %s: %w (%s)", step, kind, name, tableName, err, hint)
	}
	return fmt.Errorf("spindle: %s: %s %q: %w", step, kind, name, err)
}

// Hint says what to do about an error. It returns "" if that is not known.
func Hint(err error) string {
	if errors.Is(err, fence.ErrFenced) || errors.Is(err, table.ErrSuperseded) {
		return ""
	}
	if table.SessionLost(err) {
		return "the Spanner client has lost its session, which happens when an emulator is started again: make a new client"
	}
	if table.ClientClosed(err) {
		return "the Spanner client was closed: close it only after done, when nothing uses it any more"
	}
	if table.DatabaseMissing(err) {
		return "is the path of the Spanner client's database right?"
	}
	if !elect.Lasting(err) {
		return "" // such as one about the transaction, not the table
	}
	switch spanner.ErrCode(err) {
	case codes.NotFound:
		return "does the table exist? ddl.Create creates it"
	case codes.InvalidArgument, codes.FailedPrecondition:
		return "is it a lock table? ddl.Verify says what is wrong with it"
	case codes.PermissionDenied, codes.Unauthenticated:
		return "it needs roles/spanner.databaseUser on the database"
	}
	return ""
}
