package table

import (
	"errors"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// The emulator runs one transaction at a time. It may discard a transaction that is waiting, and then returns one of
// these texts where Spanner would abort the transaction.
var droppedTexts = []string{
	"Transaction not found",
	"Invalid transaction ID",
	"Cannot read or query using a transaction after it has been committed or rolledback",
	"Cannot commit a transaction after it has been rolled back",
}

// Dropped reports whether err means that the emulator has discarded the request's transaction, so that none of it was
// applied. If the client sent the request more than once, Dropped returns false: the first attempt may have committed
// the transaction, so that the second one did not find it. The last number in a request's id is the number of the
// attempt.
func Dropped(err error) bool {
	//lint:ignore SA1019 no other type in the client has the request id
	var said *spanner.Error
	if !errors.As(err, &said) || !strings.HasSuffix(said.RequestID, ".1") {
		return false
	}
	switch spanner.ErrCode(said) {
	case codes.NotFound, codes.FailedPrecondition:
		for _, text := range droppedTexts {
			if strings.HasPrefix(said.Desc, text) {
				return true
			}
		}
	}
	return false
}
