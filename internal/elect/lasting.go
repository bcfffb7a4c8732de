package elect

import (
	"errors"
	"regexp"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// Lasting reports whether err will not go away by itself, because something is missing, forbidden or wrong. The loss of
// a transaction is not a lasting error.
func Lasting(err error) bool {
	if errors.Is(err, table.ErrGroup) || errors.Is(err, table.ErrGarbled) || errors.Is(err, table.ErrUnordered) {
		return true
	}
	switch spanner.ErrCode(err) {
	case codes.PermissionDenied, codes.OutOfRange, codes.Unimplemented:
		return true
	case codes.Unauthenticated: // unless fetching the credentials failed, which can be temporary
		return !strings.HasPrefix(spanner.ErrDesc(err), "transport:")
	case codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument:
		return !transactionIsLost(spanner.ErrDesc(err)) || Nested(err)
	}
	return false
}

// lostTransaction matches the messages of Spanner, its client and the emulator about a lost transaction. The name of a
// database, table or column can contain the word too, but only after a colon or after the kind of the object.
var (
	lostTransaction = regexp.MustCompile(`^(?i)[^:]*\btransaction\b`)
	named           = regexp.MustCompile(`^(?i)[^:]*\b(database|table|column|index|instance)\b`)
)

func transactionIsLost(desc string) bool {
	return lostTransaction.MatchString(desc) && !named.MatchString(desc)
}

// Nested reports whether err means that ctx was the context of a transaction's function.
func Nested(err error) bool { return strings.Contains(spanner.ErrDesc(err), "nested transactions") }
