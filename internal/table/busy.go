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

// A table that is seldom pruned has many more released locks than others. No index tells them apart, so to list the
// held ones Spanner reads all rows. A query at least saves their transfer: Spanner itself drops released lock rows and
// free rows. Keys.Skips alone decides, among the rest, whether a row is listed.

// busyQuery has no parameters and only functions that both dialects have. The 17th character from the end of a lease
// row's key is an underscore. Of other rows with one there it may keep too many, which does no harm, but drops none
// that matters: an id that is the text of a free row is nobody's. The conditions are in the order in which they decide
// most rows soonest.
const busyQuery = `SELECT name, heartbeat, token, writer FROM {table} WHERE CASE WHEN heartbeat IS NULL
	THEN writer IS NOT NULL OR STRPOS(name, '/member/') > 0 OR STRPOS(name, '/partition/') > 0 OR SUBSTR(name, LENGTH(name) - 16, 1) = '_'
	ELSE writer IS NULL OR STRPOS(writer, '"free":true') = 0 OR SUBSTR(name, LENGTH(name) - 16, 1) <> '_' END`

// busy reads the rows that Keys with Busy and without a prefix don't skip.
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
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Name, b.Name) }) // here, not in Spanner: they are few
	return slices.DeleteFunc(rows, keys.Skips), at, err
}

// refusedQuery reports whether a query failed in a way in which a read by keys may not: the table's name is a word of
// SQL, or the table is missing, which a read reports better.
func refusedQuery(err error) bool {
	return slices.Contains([]codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.PermissionDenied, codes.Unimplemented}, spanner.ErrCode(err))
}
