package table

import (
	"time"

	"context"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// In a table that is seldom pruned, most locks are released. No index separates them from the held locks, so Spanner
// reads all rows to list the held ones. A query at least avoids transferring the others, because Spanner itself filters
// out the rows of released locks. The query is only a first filter: Keys.Skips decides which of the remaining rows are
// listed.

// busyQuery has no parameters and uses only functions that both dialects have. In a lease row's key, the 17th character
// from the end is an underscore. The query may keep too many of the other rows with such a key, which is harmless. It
// drops such a row only if the id in it contains the text of a free row, and no id does. The conditions are ordered so
// that most rows are decided early.
const busyQuery = `SELECT name, heartbeat, token, writer FROM {table} WHERE CASE WHEN heartbeat IS NULL
	THEN writer IS NOT NULL OR STRPOS(name, '/member/') > 0 OR STRPOS(name, '/partition/') > 0 OR SUBSTR(name, LENGTH(name) - 16, 1) = '_'
	ELSE writer IS NULL OR STRPOS(writer, '"free":true') = 0 OR SUBSTR(name, LENGTH(name) - 16, 1) <> '_' END`

// busy reads all rows of the table, except those that Keys with Busy skips.
func (s Spanner) busy(ctx context.Context, step string, bound spanner.TimestampBound) ([]Row, time.Time, error) {
	if err := CheckTable(s.Table); err != nil {
		return nil, time.Time{}, spanner.ToSpannerError(status.Error(codes.InvalidArgument, err.Error()))
	}
	keys := Keys{All: true, Busy: true}
	txn := s.DB.Single().WithTimestampBound(bound)
	rows, err := collect(txn.QueryWithOptions(ctx, spanner.Statement{SQL: strings.Replace(busyQuery, "{table}", s.Table, 1)},
		spanner.QueryOptions{Priority: readPriority(step, keys), RequestTag: tag(step), DirectedReadOptions: undirected}))
	if err != nil {
		return nil, time.Time{}, err
	}
	at, err := txn.Timestamp()
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Name, b.Name) }) // sorted here because few rows are left
	return slices.DeleteFunc(rows, keys.Skips), at, err
}

// refusedQuery reports whether a query failed for a reason that might not affect a read by key. For example, the
// table's name may be a reserved word in SQL. A missing table counts as such a reason, because the error of a read is
// clearer.
func refusedQuery(err error) bool {
	return slices.Contains([]codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.PermissionDenied, codes.Unimplemented}, spanner.ErrCode(err))
}
