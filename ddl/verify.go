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

// A SchemaError says that a table is not a lock table.
type SchemaError struct {
	// Table is the name that was asked for.
	Table string

	// Problems has one sentence, without a final period, for each thing that is wrong. It is never empty.
	Problems []string

	dialect databasepb.DatabaseDialect
	missing bool // the table itself, and so everything
}

// Error lists the problems and the statement that creates a correct table.
func (e *SchemaError) Error() string {
	mend := "alter the table, or use another one, so that it is as this would make it"
	if e.missing {
		mend = "call ddl.Create, or execute"
	}
	return fmt.Sprintf("ddl: table %s is not a lock table: %s; to mend it, %s:\n%s",
		e.Table, strings.Join(e.Problems, "; "), mend, Statement(e.dialect, e.Table))
}

// Verify reads the schema of a table and returns nil if it is a lock table. Otherwise the error is a [*SchemaError]
// that names everything wrong with it: a missing table or column; a wrong type; a string that is too short for the
// longest name or value of a lock; a timestamp that does not allow commit timestamps; a column that can't be written,
// or can't be NULL where locks need it; a row deletion policy; another primary key, or one in descending order; and
// everything else that would make inserts fail: another column that an insert must give, a unique index that does not
// include the name, a parent table. Other columns are fine if an insert can leave them out.
//
// Letter case does not matter in names. Any other error comes from a query. Verify blocks until ctx ends if Spanner
// can't be reached.
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
			problems = append(problems, fmt.Sprintf("column %s is NOT NULL and has no default, so inserts would fail, want it nullable, with a default, or dropped", c.Name))
		}
	}
	for _, i := range t.unique {
		if !slices.Contains(i.on, "name") {
			problems = append(problems, fmt.Sprintf("index %s on (%s) is unique, so the rows of two locks could exclude each other, want it dropped or not unique", i.name, strings.Join(i.on, ", ")))
		}
	}
	if t.parent != "" {
		problems = append(problems, fmt.Sprintf("the table is interleaved in %s, so inserts would need a row there, want a table of its own", t.parent))
	}
	if t.expiry != "" {
		problems = append(problems, fmt.Sprintf("the table has a row deletion policy (%s), which would take locks away from holders that are alive, want it dropped: ALTER TABLE %s %s",
			t.expiry, t.table, dropExpiry(dialect)))
	}
	return problems
}

// keyProblems compares the primary key with (name). Locks read ranges of names in ascending order: if the key is sorted
// the other way, Spanner finds nothing in such a range.
func (t schema) keyProblems() []string {
	switch key := strings.Join(t.key, ", "); key {
	case "name":
		return nil
	case "name" + descending:
		return []string{fmt.Sprintf("the primary key is (%s), so ranges of names would be read as empty, want (name); the order of a key can't be altered: drop the table, or use another one", key)}
	default:
		return []string{fmt.Sprintf("the primary key is (%s), want (name)", key)}
	}
}

// A need is what locks need from a column.
type need struct {
	name, typ string
	hasType   func(column) bool
	length    int  // in characters, the longest that is written
	null      bool // NULL is written
}

func needs(dialect databasepb.DatabaseDialect) []need {
	text, timestamp := typeNames(dialect)
	return []need{
		{name: "name", typ: text, hasType: column.isText, length: table.MaxKey},
		{name: "heartbeat", typ: timestamp, hasType: column.isCommitTimestamp, null: true},
		{name: "token", typ: timestamp, hasType: column.isCommitTimestamp},
		{name: "writer", typ: text, hasType: column.isText, length: table.MaxWriter, null: true},
	}
}

func (n need) problems(got column) []string {
	if !n.hasType(got) {
		return []string{fmt.Sprintf("column %s is %s, want %s", n.name, got, n.typ)}
	}
	var problems []string
	if length, bounded := got.length(); bounded && length < n.length {
		problems = append(problems, fmt.Sprintf("column %s is %s, and up to %d characters are written there, want %s", n.name, got, n.length, n.typ))
	}
	if n.null && !got.Nullable {
		problems = append(problems, fmt.Sprintf("column %s is NOT NULL, and a release writes NULL there, want it nullable", n.name))
	}
	if got.Generated {
		problems = append(problems, fmt.Sprintf("column %s is generated, so it can't be written, want a plain column", n.name))
	}
	return problems
}

func dropExpiry(dialect databasepb.DatabaseDialect) string {
	if dialect == databasepb.DatabaseDialect_POSTGRESQL {
		return "DROP TTL"
	}
	return "DROP ROW DELETION POLICY"
}

func typeNames(dialect databasepb.DatabaseDialect) (text, timestamp string) {
	if dialect == databasepb.DatabaseDialect_POSTGRESQL {
		return "varchar", "SPANNER.COMMIT_TIMESTAMP"
	}
	return "STRING(MAX)", "TIMESTAMP OPTIONS (allow_commit_timestamp=true)"
}

func (c column) isText() bool {
	typ := strings.ToLower(c.Type)
	return strings.HasPrefix(typ, "string(") || typ == "text" || strings.HasPrefix(typ, "character varying")
}

// length returns how many characters a text may have, if that is bounded, as in STRING(36) and character varying(36).
func (c column) length() (n int, bounded bool) {
	_, length, _ := strings.Cut(strings.TrimSuffix(c.Type, ")"), "(")
	n, err := strconv.Atoi(length)
	return n, err == nil
}

// isCommitTimestamp covers both dialects: in PostgreSQL the type is enough; in GoogleSQL it takes an option.
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
