package ddl

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle/internal/table"
)

// A SchemaError describes why a table is not a lock table.
type SchemaError struct {
	// Table is the name that the caller gave.
	Table string

	// Problems describes each problem in one sentence without a final period. It is never empty.
	Problems []string

	dialect databasepb.DatabaseDialect
	missing bool // the table does not exist
}

// Error lists the problems, followed by the statement that creates a correct table.
func (e *SchemaError) Error() string {
	mend := "alter the table to match this statement, or use a different table"
	if e.missing {
		mend = "call ddl.Create or run this statement"
	}
	return fmt.Sprintf("ddl: table %s is not a lock table: %s; to fix this, %s:\n%s",
		e.Table, strings.Join(e.Problems, "; "), mend, Statement(e.dialect, e.Table))
}

// Verify reads the schema of a table, and returns nil if the table is a lock table. Otherwise it returns a
// [*SchemaError] that lists every problem:
//
//   - The table or a column is missing, or a column has the wrong type.
//   - A string column is too short for the longest value that locks write to it.
//   - A timestamp column does not allow commit timestamps.
//   - A column is generated, or does not allow NULL although locks write NULL to it.
//   - The table has a row deletion policy.
//   - The primary key is different or in descending order.
//   - Inserts can fail because an additional column requires a value, because a unique index does not include the name
//     column, or because the table is interleaved in another table.
//
// Additional columns are allowed if an insert can omit them. Names are compared without regard to case.
//
// Verify returns another error if the name is not valid or a query fails. If Spanner cannot be reached, Verify blocks
// until ctx ends.
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

// problems returns the differences between the table and a lock table.
func (t schema) problems(dialect databasepb.DatabaseDialect) []string {
	if len(t.columns) == 0 {
		return []string{"the table is missing"}
	}
	var problems []string
	known := map[string]bool{}
	for _, want := range needs(dialect) {
		known[want.name] = true
		if i := slices.IndexFunc(t.columns, func(c column) bool { return c.Name == want.name }); i >= 0 {
			problems = append(problems, want.problems(t.columns[i])...)
		} else {
			problems = append(problems, fmt.Sprintf("column %s is missing, want %s", want.name, want.typ))
		}
	}
	problems = append(problems, t.keyProblems()...)
	for _, c := range t.columns {
		if !known[c.Name] && c.Required {
			problems = append(problems, fmt.Sprintf("inserts omit column %s, so it must be nullable, have a default, or be dropped", c.Name))
		}
	}
	for _, i := range t.unique {
		if !slices.Contains(i.on, "name") {
			problems = append(problems, fmt.Sprintf("index %s on (%s) must not be unique, because the rows of two locks could conflict", i.name, strings.Join(i.on, ", ")))
		}
	}
	if t.parent != "" {
		problems = append(problems, fmt.Sprintf("the table must not be interleaved in %s, because inserts would need a parent row", t.parent))
	}
	if t.expiry != "" {
		problems = append(problems, fmt.Sprintf("the table must not have a row deletion policy (%s), because it would delete locks that are held; to drop it, run ALTER TABLE %s %s",
			t.expiry, t.table, flavorOf(dialect).dropExpiry))
	}
	return problems
}

// keyProblems compares the primary key with (name). Locks read ranges of names in ascending order. If the key is in
// descending order, Spanner finds no rows in such a range.
func (t schema) keyProblems() []string {
	switch key := strings.Join(t.key, ", "); key {
	case "name":
		return nil
	case "name" + descending:
		return []string{fmt.Sprintf("the primary key must be (name), not (%s), because reads of name ranges would find nothing; to change the order, drop and recreate the table, or use a different table", key)}
	default:
		return []string{fmt.Sprintf("the primary key must be (name), not (%s)", key)}
	}
}

// A need is what a lock table requires of a column.
type need struct {
	name, typ string
	hasType   func(column) bool
	length    int  // the longest value that is written, in characters
	null      bool // NULL is written
}

func needs(dialect databasepb.DatabaseDialect) []need {
	f := flavorOf(dialect)
	return []need{
		{name: "name", typ: f.text, hasType: column.isText, length: table.MaxKey},
		{name: "heartbeat", typ: f.timestamp, hasType: column.isCommitTimestamp, null: true},
		{name: "token", typ: f.timestamp, hasType: column.isCommitTimestamp, null: true},
		{name: "writer", typ: f.text, hasType: column.isText, length: table.MaxWriter, null: true},
	}
}

func (n need) problems(got column) []string {
	if !n.hasType(got) {
		return []string{fmt.Sprintf("column %s is %s, want %s", n.name, got, n.typ)}
	}
	var problems []string
	if length, bounded := got.length(); bounded && length < n.length {
		problems = append(problems, fmt.Sprintf("column %[1]s is %[2]s, but must be %[4]s to hold up to %[3]d characters", n.name, got, n.length, n.typ))
	}
	if n.null && !got.Nullable {
		problems = append(problems, fmt.Sprintf("column %s must be nullable, because locks write NULL to it", n.name))
	}
	if got.Generated {
		problems = append(problems, fmt.Sprintf("column %s must not be generated, because locks write to it", n.name))
	}
	return problems
}

func (c column) isText() bool {
	typ := strings.ToLower(c.Type)
	return strings.HasPrefix(typ, "string(") || typ == "text" || strings.HasPrefix(typ, "character varying") && !strings.HasSuffix(typ, "[]")
}

// length returns the maximum number of characters in a text column, as in STRING(36) or character varying(36). If the
// column has no maximum, bounded is false.
func (c column) length() (n int, bounded bool) {
	_, length, _ := strings.Cut(strings.TrimSuffix(c.Type, ")"), "(")
	n, err := strconv.Atoi(length)
	return n, err == nil
}

// isCommitTimestamp reports whether the column can store commit timestamps. In PostgreSQL, the type
// SPANNER.COMMIT_TIMESTAMP is enough. In GoogleSQL, the column also needs an option.
func (c column) isCommitTimestamp() bool {
	typ := strings.ToLower(c.Type)
	return typ == "spanner.commit_timestamp" || typ == "timestamp" && c.CommitTimestamp
}

func (c column) String() string {
	if strings.EqualFold(c.Type, "TIMESTAMP") && !c.CommitTimestamp {
		return c.Type + " without allow_commit_timestamp"
	}
	return c.Type
}
