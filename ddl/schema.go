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
	columns map[string]column
	order   []string // the names of the columns, as the table has them
	key     []string // the columns of the primary key
}

type column struct {
	typ             string
	commitTimestamp bool // by option, as in GoogleSQL
	mustBeGiven     bool // an insert without it fails
}

// Both dialects understand these queries, whose arguments are the name of the
// schema and of the table. The names are checked identifiers, and as parameters
// they would be written differently in each.
const (
	dialectQuery = `SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'`

	columnsQuery = `SELECT LOWER(c.column_name), c.spanner_type,
	c.is_nullable = 'NO' AND c.column_default IS NULL AND c.is_generated = 'NEVER' AND c.is_identity = 'NO',
	EXISTS (SELECT 1 FROM information_schema.column_options o
		WHERE o.table_schema = c.table_schema AND o.table_name = c.table_name AND o.column_name = c.column_name
		AND LOWER(o.option_name) = 'allow_commit_timestamp' AND UPPER(o.option_value) = 'TRUE')
FROM information_schema.columns c
WHERE LOWER(c.table_schema) = '%s' AND LOWER(c.table_name) = '%s'
ORDER BY c.ordinal_position`

	keyQuery = `SELECT LOWER(i.column_name)
FROM information_schema.index_columns i
WHERE LOWER(i.table_schema) = '%s' AND LOWER(i.table_name) = '%s' AND i.index_type = 'PRIMARY_KEY'
ORDER BY i.ordinal_position`
)

// read reads a table's schema as of one moment.
func read(ctx context.Context, db *spanner.Client, table string) (databasepb.DatabaseDialect, schema, error) {
	tx := db.ReadOnlyTransaction()
	defer tx.Close()

	found := schema{columns: map[string]column{}}
	dialect, err := readDialect(ctx, tx)
	if err != nil {
		return dialect, found, err
	}
	space, name := split(dialect, table)
	err = query(ctx, tx, fmt.Sprintf(columnsQuery, space, name), func(row *spanner.Row) error {
		var name string
		var c column
		if err := row.Columns(&name, &c.typ, &c.mustBeGiven, &c.commitTimestamp); err != nil {
			return err
		}
		found.columns[name] = c
		found.order = append(found.order, name)
		return nil
	})
	if err != nil {
		return dialect, found, err
	}
	err = query(ctx, tx, fmt.Sprintf(keyQuery, space, name), func(row *spanner.Row) error {
		var name string
		err := row.Columns(&name)
		found.key = append(found.key, name)
		return err
	})
	return dialect, found, err
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
