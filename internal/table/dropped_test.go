package table

import (
	"fmt"
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
)

// An error does not count as that of a discarded transaction if the transaction may have been applied or if the error
// is about a row.
func TestOnlyATransactionThatWasNeverCommittedIsDropped(t *testing.T) {
	for _, c := range []struct {
		code    codes.Code
		desc    string
		id      string
		dropped bool
	}{
		{codes.NotFound, "Transaction not found: 221", "1.c1d8b0.1.1.37.1", true},
		{codes.FailedPrecondition, "Invalid transaction ID. Transaction ID must be >= 49", "1.c1d8b0.1.1.37.1", true},
		{codes.FailedPrecondition, "Cannot read or query using a transaction after it has been committed or rolledback.", "1.c1d8b0.1.1.37.1", true},
		{codes.FailedPrecondition, "Cannot commit a transaction after it has been rolled back.", "1.c1d8b0.1.1.37.1", true},
		{codes.NotFound, "Transaction not found: 221", "1.c1d8b0.1.1.1.2", false},   // sent again
		{codes.NotFound, "Transaction not found: 221", "1.c1d8b0.1.1.37.11", false}, // and again
		{codes.NotFound, "Transaction not found: 221", "", false},
		{codes.NotFound, "Table t: Row {String(\"Transaction not found\")} not found.", "1.c1d8b0.1.1.37.1", false},
		{codes.NotFound, "Database not found: d", "1.c1d8b0.1.1.37.1", false},
		{codes.Unavailable, "Transaction not found: 221", "1.c1d8b0.1.1.37.1", false},
	} {
		//lint:ignore SA1019 no other type of the client has a request's id
		err := fmt.Errorf("claim: %w", &spanner.Error{Code: c.code, Desc: c.desc, RequestID: c.id})
		assert.Equal(t, c.dropped, Dropped(err), "%v", err)
	}
	assert.False(t, Dropped(nil))
}
