package elect

import (
	"errors"
	"regexp"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// Lasting reports whether an error will not go away by itself: something is missing, not allowed or wrong, and not just
// a lost transaction.
func Lasting(err error) bool {
	if errors.Is(err, table.ErrGroup) || errors.Is(err, table.ErrGarbled) || errors.Is(err, table.ErrUnordered) {
		return true
	}
	switch spanner.ErrCode(err) {
	case codes.PermissionDenied, codes.OutOfRange, codes.Unimplemented:
		return true
	case codes.Unauthenticated: // unless the credentials could not be fetched just now
		return !strings.HasPrefix(spanner.ErrDesc(err), "transport:")
	case codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument:
		return !transactionIsLost(spanner.ErrDesc(err)) || Nested(err)
	}
	return false
}

// lostTransaction matches the texts of Spanner, its client and the emulator about a lost transaction. Names of
// databases, tables and columns may contain the word too, but come after a colon, or after their kind.
var (
	lostTransaction = regexp.MustCompile(`^(?i)[^:]*\btransaction\b`)
	named           = regexp.MustCompile(`^(?i)[^:]*\b(database|table|column|index|instance)\b`)
)

func transactionIsLost(desc string) bool {
	return lostTransaction.MatchString(desc) && !named.MatchString(desc)
}

// Nested reports whether err says that the ctx belongs to a transaction's function.
func Nested(err error) bool { return strings.Contains(spanner.ErrDesc(err), "nested transactions") }
