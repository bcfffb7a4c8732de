package elect

import (
	"errors"
	"regexp"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// Lasting reports whether err is permanent, because something is missing, forbidden or invalid. A lost transaction is
// not a permanent error.
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

// lostTransaction matches messages about a lost transaction, from Spanner, its client or the emulator. The name of a
// database, table or column can contain the word "transaction" too. In messages about those, the name follows a colon
// or a word such as "table".
var (
	lostTransaction = regexp.MustCompile(`^(?i)[^:]*\btransaction\b`)
	named           = regexp.MustCompile(`^(?i)[^:]*\b(database|table|column|index|instance)\b`)
)

func transactionIsLost(desc string) bool {
	return lostTransaction.MatchString(desc) && !named.MatchString(desc)
}

// Nested reports whether err means that ctx was the context of a transaction's function.
func Nested(err error) bool { return strings.Contains(spanner.ErrDesc(err), "nested transactions") }
