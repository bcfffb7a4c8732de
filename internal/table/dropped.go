package table

import (
	"errors"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// The emulator runs only one transaction at a time, and may discard another one that is waiting. Where Spanner would
// return ABORTED, the emulator then returns an error with one of these texts.
var droppedTexts = []string{
	"Transaction not found",
	"Invalid transaction ID",
	"Cannot read or query using a transaction after it has been committed or rolledback",
	"Cannot commit a transaction after it has been rolled back",
}

// Dropped reports whether err means that the emulator has discarded the request's transaction without applying any of
// it.
//
// Dropped returns false if the client sent the request more than once. In that case, the first attempt may have
// committed the transaction, and the error may only mean that the second attempt no longer found it. The number of the
// attempt is the last number in the request's id.
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
