package ddl

import (
	"context"
	"fmt"
	"strings"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
)

// A SchemaError says that a table is not a lock table.
type SchemaError struct {
	// Table is the name that was asked for.
	Table string

	// Problems has one sentence, without a final period, for everything that
	// is wrong. It is never empty.
	Problems []string

	dialect databasepb.DatabaseDialect
	missing bool // the table itself, and so everything
}

// Error lists the problems and the statement that makes a right table.
func (e *SchemaError) Error() string {
	mend := "alter the table, or use another one, so that it is as this would make it"
	if e.missing {
		mend = "call ddl.Create, or execute"
	}
	return fmt.Sprintf("ddl: table %s is not a lock table: %s; to mend it, %s:\n%s",
		e.Table, strings.Join(e.Problems, "; "), mend, Statement(e.dialect, e.Table))
}

// Verify reads the schema of a table and returns nil if it is a lock table. If
// it is not, the error is a [*SchemaError] that names everything wrong with it:
// a missing table or column, a wrong type, a timestamp that does not allow
// commit timestamps, another primary key, and any further column that would
// make inserts fail. Any length will do for the strings, and further columns
// are fine if they can be left out of an insert.
//
// Letter case does not matter in names. Any other error is that of a query. Verify blocks until ctx ends
// where Spanner can't be reached.
func Verify(ctx context.Context, db *spanner.Client, table string) error {
	if err := checkName(table); err != nil {
		return err
	}
	dialect, found, err := read(ctx, db, table)
	if err != nil {
		return fmt.Errorf("ddl: cannot read the schema of table %s: %w", table, err)
	}
	if problems := found.problems(dialect); len(problems) > 0 {
		return &SchemaError{Table: table, Problems: problems, dialect: dialect, missing: len(found.columns) == 0}
	}
	return nil
}

// problems compares a table with what a lock table has to be.
func (t schema) problems(dialect databasepb.DatabaseDialect) []string {
	if len(t.columns) == 0 {
		return []string{"the table is missing"}
	}
	text, timestamp := typeNames(dialect)
	required := []struct {
		name string
		typ  string
		ok   func(column) bool
	}{
		{"name", text, column.isText},
		{"heartbeat", timestamp, column.isCommitTimestamp},
		{"token", timestamp, column.isCommitTimestamp},
		{"writer", text, column.isText},
	}

	var problems []string
	known := map[string]bool{}
	for _, want := range required {
		known[want.name] = true
		got, ok := t.columns[want.name]
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("column %s is missing, want %s", want.name, want.typ))
		case !want.ok(got):
			problems = append(problems, fmt.Sprintf("column %s is %s, want %s", want.name, got, want.typ))
		}
	}
	if key := strings.Join(t.key, ", "); key != "name" {
		problems = append(problems, fmt.Sprintf("the primary key is (%s), want (name)", key))
	}
	for _, name := range t.order {
		if c := t.columns[name]; !known[name] && c.mustBeGiven {
			problems = append(problems, fmt.Sprintf("column %s is NOT NULL and has no default, so inserts would fail, want it nullable, with a default, or dropped", name))
		}
	}
	return problems
}

func typeNames(dialect databasepb.DatabaseDialect) (text, timestamp string) {
	if dialect == databasepb.DatabaseDialect_POSTGRESQL {
		return "varchar", "SPANNER.COMMIT_TIMESTAMP"
	}
	return "STRING(MAX)", "TIMESTAMP OPTIONS (allow_commit_timestamp=true)"
}

func (c column) isText() bool {
	typ := strings.ToLower(c.typ)
	return strings.HasPrefix(typ, "string(") || typ == "text" || strings.HasPrefix(typ, "character varying")
}

// isCommitTimestamp distinguishes both dialects: in PostgreSQL, the type says
// it all; in GoogleSQL, it takes an option.
func (c column) isCommitTimestamp() bool {
	typ := strings.ToLower(c.typ)
	return typ == "spanner.commit_timestamp" || typ == "timestamp" && c.commitTimestamp
}

func (c column) String() string {
	if strings.EqualFold(c.typ, "TIMESTAMP") && !c.commitTimestamp {
		return c.typ + " without allow_commit_timestamp"
	}
	return c.typ
}
