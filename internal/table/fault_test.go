package table

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Whether a caller waits, which advice it gets, and whether its term has ended depend on the fault alone. Spanner uses the same
// code for a missing row, table or session and for a lost transaction. Names in the texts must not mislead, and the kind of what
// is missing is a stronger sign than the text.
func TestEachErrorIsOneFault(t *testing.T) {
	for _, is := range []struct {
		code  codes.Code
		text  string
		kind  string
		fault *Fault
	}{
		{codes.PermissionDenied, "missing spanner.databases.beginOrRollbackReadWriteTransaction", "", NoPermission},
		{codes.Unauthenticated, "token expired", "", NoCredentials},
		{codes.Unauthenticated, "transport: per-RPC creds failed due to error: dial tcp: i/o timeout", "", NoToken},
		{codes.NotFound, "Table not found: locktable", "", NoTable},
		{codes.InvalidArgument, "Table not found: locktable", "", NoTable},
		{codes.NotFound, "Table not found: transaction_locks", "", NoTable},
		{codes.NotFound, "Table not found: transaction", "", NoTable},
		{codes.NotFound, "Database not found: projects/p/instances/i/databases/transactions", "", NoDatabase},
		{codes.NotFound, "Instance not found: projects/p/instances/i", "", NoDatabase},
		{codes.NotFound, "Session not found: projects/p/instances/i/databases/d/sessions/s", "", NoSession},
		{codes.NotFound, "Session was concurrently deleted", "", NoSession},
		{codes.NotFound, "Column not found in table locktable: token", "", BadTable},
		{codes.NotFound, "Row [l_1763645616123456] in table locktable is missing. Row cannot be updated.", "", noRow},
		{codes.NotFound, "Table transaction: Row {String(\"l\")} not found.", "", noRow},
		{codes.NotFound, "something", "", NotFound},
		{codes.NotFound, "Transaction not found: 17", "", Passing},
		{codes.FailedPrecondition, "Value exceeds the limit for this column: transaction.writer", "", BadTable},
		{codes.FailedPrecondition, "Column writer of table transaction is read-only", "", BadTable},
		{codes.InvalidArgument, "Cannot write commit timestamp", "", BadTable},
		{codes.FailedPrecondition, "the value is longer than the column", "", BadTable},
		{codes.FailedPrecondition, "Cloud Spanner does not support nested transactions", "", Nested},
		{codes.FailedPrecondition, "Cannot read or query using a transaction after it has been committed or rolledback.", "", Passing},
		{codes.InvalidArgument, "Invalid transaction ID", "", Passing},
		{codes.FailedPrecondition, "This transaction has been invalidated by a later one", "", Passing},
		{codes.InvalidArgument, "invalid session", "", NoClient},
		{codes.FailedPrecondition, "SessionClient is closed", "", NoClient},
		{codes.Canceled, "grpc: the client connection is closing", "", NoClient},
		{codes.Canceled, "Session client closed", "", NoClient},
		{codes.Canceled, "context canceled", "", Passing},
		{codes.Aborted, "Transaction was aborted", "", Passing},
		{codes.Internal, "stream terminated by RST_STREAM", "", Passing},
		{codes.Unavailable, "connection refused", "", Unreachable},
		{codes.DeadlineExceeded, "it took too long", "", Unreachable},
		{codes.ResourceExhausted, "too many requests", "", Exhausted},
		{codes.OutOfRange, "a", "", Wrong},
		{codes.Unimplemented, "a", "", Wrong},
		{codes.AlreadyExists, "Row [l] in table locktable already exists", "", NotAFault},
		{codes.NotFound, "Row [my\nlock_1763645616123456] in table locktable is missing", "", noRow},
		{codes.NotFound, "Database not found: projects/p/instances/i/databases/d", "admin.database.v1.Database", NoDatabase},
		{codes.NotFound, "Instance not found: projects/p/instances/i", "admin.instance.v1.Instance", NoDatabase},
		{codes.NotFound, "Session not found: projects/p/instances/i/databases/d/sessions/s", "v1.Session", NoSession},
		{codes.NotFound, "Row [x] in table locktable is missing", "v1.Session", NoSession},
		{codes.NotFound, "Session not found: a row of it is missing", "", NoSession},
		{codes.NotFound, "", "", NotFound},
		{codes.FailedPrecondition, "Table not found: locktable", "", NoTable},
		{codes.Unavailable, "Row [x] in table locktable is missing", "", Unreachable},
	} {
		st := status.New(is.code, is.text)
		if is.kind != "" {
			var err error
			st, err = st.WithDetails(&errdetails.ResourceInfo{ResourceType: "type.googleapis.com/google.spanner." + is.kind})
			require.NoError(t, err)
		}
		reports := map[string]error{"raw": st.Err(), "the client's": spanner.ToSpannerError(st.Err()),
			"wrapped": fmt.Errorf("claim: %w", st.Err()), "the client's, wrapped": fmt.Errorf("claim: %w", spanner.ToSpannerError(st.Err()))}
		if is.kind == "" { // the answer says more than that the time was up
			reports["after its deadline"] = fmt.Errorf("%w: %w", context.DeadlineExceeded, st.Err())
			reports["the last answer before its deadline"] = fmt.Errorf("%w; repeated until: %w", spanner.ToSpannerError(st.Err()), context.DeadlineExceeded)
		}
		for how, err := range reports {
			assert.Same(t, is.fault, FaultOf(err), "%v, %s", is, how)
			gone := is.fault == noRow || is.fault == NoDatabase || is.fault == NoTable && is.code != codes.FailedPrecondition
			assert.Equal(t, gone, Missing(err), "%v, %s", is, how)
			first := is.fault == noRow || is.code == codes.Aborted || is.code == codes.AlreadyExists // another transaction was
			assert.Equal(t, first, overtaken(err), "%v, %s", is, how)
		}
	}
	for err, fault := range map[error]*Fault{
		ErrGroup: Wrong, ErrGarbled: Wrong, ErrUnordered: Wrong, ErrNewer: NotAFault, ErrChanged: NotAFault, nil: NotAFault,
		context.DeadlineExceeded: Unreachable, context.Canceled: NotAFault,
		errors.New("google: could not find default credentials"): NoCredentials,
	} {
		assert.Same(t, fault, FaultOf(err), "%v", err)
		assert.False(t, Missing(err) || overtaken(err), "%v", err)
	}
}

// Ended returns the context's error and the cause that the context's owner has given, and says each once. A caller can tell by
// either why its call has ended.
func TestTheEndOfAContextIsItsErrorAndItsCause(t *testing.T) {
	own := errors.New("the term is over")
	for _, cause := range []error{nil, own, context.Canceled, context.DeadlineExceeded, fmt.Errorf("%w: %w", context.Canceled, own), fmt.Errorf("%w: %w", context.DeadlineExceeded, own)} {
		canceled, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		late, stop := context.WithDeadlineCause(t.Context(), time.Unix(0, 0), cause)
		defer stop()
		for _, ctx := range []context.Context{canceled, late} {
			err := Ended(ctx)
			assert.ErrorIs(t, err, ctx.Err())
			assert.Equal(t, 1, strings.Count(err.Error(), ctx.Err().Error()), "%v", err)
			if cause != nil {
				assert.ErrorIs(t, err, cause)
			}
			assert.Equal(t, errors.Is(cause, own), errors.Is(err, own))
		}
	}
}
