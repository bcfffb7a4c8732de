package ddl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
)

// A schema describes a table. The names of columns are in lower case. If the table does not exist, it has no columns.
type schema struct {
	table   string // the name that the caller gave
	columns []column
	key     []string // the columns of the primary key, each followed by DESC if its order is descending
	unique  []index  // the unique indexes other than the primary key
	expiry  string   // the row deletion policy, or empty
	parent  string   // the table that this one is interleaved in, or empty
}

// A column is a row of columnsQuery.
type column struct {
	Name            string
	Type            string
	Nullable        bool
	Generated       bool
	Required        bool // an insert that omits it fails
	CommitTimestamp bool // allowed by a column option, as in GoogleSQL
}

type index struct {
	name string
	on   []string
}

// These queries work in both dialects. The names of the schema and the table are inserted into the text of a query,
// because the dialects write query parameters differently. This is safe because the names have been checked.
const (
	dialectQuery = `SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'`

	tableQuery = `SELECT COALESCE(t.row_deletion_policy_expression, '') AS expiry, COALESCE(t.parent_table_name, '') AS parent
FROM information_schema.tables t
WHERE LOWER(t.table_schema) = '%s' AND LOWER(t.table_name) = '%s'`

	columnsQuery = `SELECT LOWER(c.column_name) AS name, c.spanner_type AS type, c.is_nullable = 'YES' AS nullable, c.is_generated = 'ALWAYS' AS generated,
	c.is_nullable = 'NO' AND c.column_default IS NULL AND c.is_generated = 'NEVER' AND c.is_identity = 'NO' AS required,
	EXISTS (SELECT 1 FROM information_schema.column_options o
		WHERE o.table_schema = c.table_schema AND o.table_name = c.table_name AND o.column_name = c.column_name
		AND LOWER(o.option_name) = 'allow_commit_timestamp' AND UPPER(o.option_value) = 'TRUE') AS committimestamp
FROM information_schema.columns c
WHERE LOWER(c.table_schema) = '%s' AND LOWER(c.table_name) = '%s'
ORDER BY c.ordinal_position`

	// A column that is stored in an index, but is not part of its key, has no ordinal_position. In GoogleSQL, is_unique
	// is a BOOL. In PostgreSQL, it is YES or NO.
	uniqueQuery = `SELECT i.index_name AS name, i.index_type = 'PRIMARY_KEY' AS main, LOWER(c.column_name) AS part,
	UPPER(COALESCE(c.column_ordering, '')) LIKE 'DESC%%' AS descending
FROM information_schema.indexes i
JOIN information_schema.index_columns c
	ON c.table_schema = i.table_schema AND c.table_name = i.table_name AND c.index_name = i.index_name
WHERE LOWER(i.table_schema) = '%s' AND LOWER(i.table_name) = '%s' AND c.ordinal_position IS NOT NULL
	AND UPPER(CAST(i.is_unique AS %s)) IN ('TRUE', 'YES')
ORDER BY i.index_name, c.ordinal_position`
)

// read reads a table's schema in one snapshot.
func read(ctx context.Context, db *spanner.Client, table string) (databasepb.DatabaseDialect, schema, error) {
	tx := db.ReadOnlyTransaction()
	defer tx.Close()

	found := schema{table: table}
	dialect, err := readDialect(ctx, tx)
	if err != nil {
		return dialect, found, err
	}
	space, name, named := strings.Cut(strings.ToLower(table), ".")
	if !named {
		space, name = flavorOf(dialect).space, space
	}
	var tables []struct{ Expiry, Parent string }
	if err := query(ctx, tx, &tables, tableQuery, space, name); err != nil {
		return dialect, found, err
	}
	for _, t := range tables {
		found.expiry, found.parent = t.Expiry, t.Parent
	}
	if err := query(ctx, tx, &found.columns, columnsQuery, space, name); err != nil {
		return dialect, found, err
	}
	var parts []indexPart
	err = query(ctx, tx, &parts, uniqueQuery, space, name, flavorOf(dialect).cast)
	for _, p := range parts {
		found.add(p)
	}
	return dialect, found, err
}

const descending = " DESC"

// An indexPart is a row of uniqueQuery.
type indexPart struct {
	Name       string
	Main       bool // it is the primary key
	Part       string
	Descending bool
}

func (t *schema) add(p indexPart) {
	if p.Main {
		if p.Descending {
			p.Part += descending
		}
		t.key = append(t.key, p.Part)
		return
	}
	if n := len(t.unique); n == 0 || t.unique[n-1].name != p.Name {
		t.unique = append(t.unique, index{name: p.Name})
	}
	last := &t.unique[len(t.unique)-1]
	last.on = append(last.on, p.Part)
}

func readDialect(ctx context.Context, tx *spanner.ReadOnlyTransaction) (databasepb.DatabaseDialect, error) {
	var names []string
	err := query(ctx, tx, &names, dialectQuery)
	if slices.Contains(names, databasepb.DatabaseDialect_POSTGRESQL.String()) {
		return databasepb.DatabaseDialect_POSTGRESQL, err
	}
	return databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL, err
}

func query[T any](ctx context.Context, tx *spanner.ReadOnlyTransaction, rows *[]T, sql string, args ...any) error {
	return spanner.SelectAll(tx.Query(ctx, spanner.NewStatement(fmt.Sprintf(sql, args...))), rows)
}
