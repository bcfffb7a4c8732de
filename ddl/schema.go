package ddl

import (
	"context"
	"fmt"
	"strings"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
)

// A schema is what a table is like. Names are in lower case. A table that does
// not exist has no columns.
type schema struct {
	table   string // as it was asked for
	columns map[string]column
	order   []string // the names of the columns, as the table has them
	key     []string // the columns of the primary key
	unique  []index  // the other unique ones
	expiry  string   // the row deletion policy, or empty
	parent  string   // the table whose rows this one's are interleaved in, or empty
}

type column struct {
	typ             string
	commitTimestamp bool // by option, as in GoogleSQL
	nullable        bool
	generated       bool
	mustBeGiven     bool // an insert without it fails
}

type index struct {
	name string
	on   []string
}

// Both dialects understand these queries, whose arguments are the name of the
// schema and of the table. The names are checked identifiers, and as parameters
// they would be written differently in each.
const (
	dialectQuery = `SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'`

	tableQuery = `SELECT COALESCE(t.row_deletion_policy_expression, ''), COALESCE(t.parent_table_name, '')
FROM information_schema.tables t
WHERE LOWER(t.table_schema) = '%s' AND LOWER(t.table_name) = '%s'`

	columnsQuery = `SELECT LOWER(c.column_name), c.spanner_type, c.is_nullable = 'YES', c.is_generated = 'ALWAYS',
	c.is_nullable = 'NO' AND c.column_default IS NULL AND c.is_generated = 'NEVER' AND c.is_identity = 'NO',
	EXISTS (SELECT 1 FROM information_schema.column_options o
		WHERE o.table_schema = c.table_schema AND o.table_name = c.table_name AND o.column_name = c.column_name
		AND LOWER(o.option_name) = 'allow_commit_timestamp' AND UPPER(o.option_value) = 'TRUE')
FROM information_schema.columns c
WHERE LOWER(c.table_schema) = '%s' AND LOWER(c.table_name) = '%s'
ORDER BY c.ordinal_position`

	// The columns that an index only stores have no position in it.
	uniqueQuery = `SELECT i.index_name, i.index_type = 'PRIMARY_KEY', LOWER(c.column_name)
FROM information_schema.indexes i
JOIN information_schema.index_columns c
	ON c.table_schema = i.table_schema AND c.table_name = i.table_name AND c.index_name = i.index_name
WHERE LOWER(i.table_schema) = '%s' AND LOWER(i.table_name) = '%s' AND c.ordinal_position IS NOT NULL
	AND UPPER(CAST(i.is_unique AS %s)) IN ('TRUE', 'YES')
ORDER BY i.index_name, c.ordinal_position`
)

// read reads a table's schema as of one moment.
func read(ctx context.Context, db *spanner.Client, table string) (databasepb.DatabaseDialect, schema, error) {
	tx := db.ReadOnlyTransaction()
	defer tx.Close()

	found := schema{table: table, columns: map[string]column{}}
	dialect, err := readDialect(ctx, tx)
	if err != nil {
		return dialect, found, err
	}
	space, name := split(dialect, table)
	for _, part := range []struct {
		query string
		row   func(*spanner.Row) error
	}{
		{fmt.Sprintf(tableQuery, space, name), found.readTable},
		{fmt.Sprintf(columnsQuery, space, name), found.readColumn},
		{fmt.Sprintf(uniqueQuery, space, name, stringType(dialect)), found.readUnique},
	} {
		if err := query(ctx, tx, part.query, part.row); err != nil {
			return dialect, found, err
		}
	}
	return dialect, found, nil
}

func (t *schema) readTable(row *spanner.Row) error { return row.Columns(&t.expiry, &t.parent) }

func (t *schema) readColumn(row *spanner.Row) error {
	var name string
	var c column
	if err := row.Columns(&name, &c.typ, &c.nullable, &c.generated, &c.mustBeGiven, &c.commitTimestamp); err != nil {
		return err
	}
	t.columns[name] = c
	t.order = append(t.order, name)
	return nil
}

func (t *schema) readUnique(row *spanner.Row) error {
	var name, column string
	var primary bool
	if err := row.Columns(&name, &primary, &column); err != nil {
		return err
	}
	if primary {
		t.key = append(t.key, column)
		return nil
	}
	if n := len(t.unique); n == 0 || t.unique[n-1].name != name {
		t.unique = append(t.unique, index{name: name})
	}
	last := &t.unique[len(t.unique)-1]
	last.on = append(last.on, column)
	return nil
}

// stringType is what a text is called in a CAST: is_unique is a BOOL in GoogleSQL and YES or NO in PostgreSQL.
func stringType(dialect databasepb.DatabaseDialect) string {
	if dialect == databasepb.DatabaseDialect_POSTGRESQL {
		return "varchar"
	}
	return "STRING"
}

func readDialect(ctx context.Context, tx *spanner.ReadOnlyTransaction) (databasepb.DatabaseDialect, error) {
	dialect := databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL
	err := query(ctx, tx, dialectQuery, func(row *spanner.Row) error {
		var name string
		err := row.Columns(&name)
		if name == databasepb.DatabaseDialect_POSTGRESQL.String() {
			dialect = databasepb.DatabaseDialect_POSTGRESQL
		}
		return err
	})
	return dialect, err
}

// split returns the schema's name and the table's, in lower case.
func split(dialect databasepb.DatabaseDialect, table string) (space, name string) {
	table = strings.ToLower(table)
	if space, name, ok := strings.Cut(table, "."); ok {
		return space, name
	}
	if dialect == databasepb.DatabaseDialect_POSTGRESQL {
		return "public", table
	}
	return "", table
}

func query(ctx context.Context, tx *spanner.ReadOnlyTransaction, sql string, each func(*spanner.Row) error) error {
	return tx.Query(ctx, spanner.NewStatement(sql)).Do(each)
}
