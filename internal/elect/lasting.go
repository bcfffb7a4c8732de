package elect

import (
	"errors"
	"regexp"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// Lasting reports whether an error will not go away by itself: something is missing, not allowed or wrong,
// and it is not just a transaction that is lost.
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

// lostTransaction matches what Spanner, its client and the emulator say of a transaction that is gone. The names of
// databases, tables and columns, which may have the word in them too, come after a colon, or after what they are.
var (
	lostTransaction = regexp.MustCompile(`^(?i)[^:]*\btransaction\b`)
	named           = regexp.MustCompile(`^(?i)[^:]*\b(database|table|column|index|instance)\b`)
)

func transactionIsLost(desc string) bool {
	return lostTransaction.MatchString(desc) && !named.MatchString(desc)
}

// Nested reports whether err says that the ctx is that of a transaction's function.
func Nested(err error) bool { return strings.Contains(spanner.ErrDesc(err), "nested transactions") }
