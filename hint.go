package spindle

import (
	"errors"
	"fmt"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// wrap adds the step and the lock's name to an error, and what to do about it if that is known.
func (l *Lock) wrap(step string, err error) error {
	if hint := mend(err); hint != "" {
		return fmt.Errorf("spindle: %s: lock %q in table %s: %w (%s)", step, l.name, l.spanner.Table, err, hint)
	}
	return fmt.Errorf("spindle: %s: lock %q: %w", step, l.name, err)
}

func mend(err error) string {
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrNoLeader) || errors.Is(err, ErrSuperseded) {
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
