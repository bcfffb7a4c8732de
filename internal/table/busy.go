package table

import (
	"context"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
)

// If a table is seldom pruned, most of its rows belong to released locks. No index separates them from the rows of held
// locks, so Spanner has to read the whole table to list the held locks. The query in this file makes Spanner filter out
// the rows of released locks, so that at least these are not sent to the client. The filter is only approximate, so
// Keys.Skips then checks each row that the query returns.

// busyQuery has no parameters and uses only functions that both dialects have. It recognizes a lease row by the
// underscore in its key, which is the 17th character from the end. If another row also has an underscore there, the
// query may return the row needlessly, which is harmless. It omits such a row only if the writer column contains the
// text that marks a free row, and ids do not normally contain that text. The conditions are ordered so that most rows
// are decided early.
const busyQuery = `SELECT name, heartbeat, token, writer FROM {table} WHERE CASE WHEN heartbeat IS NULL
	THEN writer IS NOT NULL OR STRPOS(name, '/member/') > 0 OR STRPOS(name, '/partition/') > 0 OR SUBSTR(name, LENGTH(name) - 16, 1) = '_'
	ELSE writer IS NULL OR STRPOS(writer, '"free":true') = 0 OR SUBSTR(name, LENGTH(name) - 16, 1) <> '_' END`

// busy reads all rows of the table, except the rows that Keys.Skips omits. It can fail where a read by key succeeds,
// for example if the table's name is a reserved word in SQL.
func (s Spanner) busy(ctx context.Context, step string, bound Bound, keys Keys) ([]Row, time.Time, error) {
	if err := CheckTable(s.Table); err != nil {
		return nil, time.Time{}, err
	}
	rows, at, err := s.snapshot(ctx, bound, keys, func(ctx context.Context, txn *spanner.ReadOnlyTransaction) *spanner.RowIterator {
		return txn.QueryWithOptions(ctx, spanner.Statement{SQL: strings.Replace(busyQuery, "{table}", s.Table, 1)},
			spanner.QueryOptions{Priority: readPriority(step, keys), RequestTag: tag(step)})
	})
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Name, b.Name) }) // sorted here because few rows are left
	return rows, at, err
}
