package table

import (
	"errors"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// The emulator runs one transaction at a time. It forgets another one that waits, and then answers with these texts
// where Spanner aborts.
var droppedTexts = []string{
	"Transaction not found",
	"Invalid transaction ID",
	"Cannot read or query using a transaction after it has been committed or rolledback",
	"Cannot commit a transaction after it has been rolled back",
}

// Dropped reports whether err says that the emulator has forgotten the request's transaction. Nothing of it was
// applied. If the client has sent a request more than once, that is not known: the first may have committed the
// transaction, and the second have found it gone. The last number of a request's id counts how often it was sent.
func Dropped(err error) bool {
	//lint:ignore SA1019 no other type of the client has a request's id
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
