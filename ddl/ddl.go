// Package ddl creates, verifies and prunes the lock table.
//
// [Create] creates the table. Programs that have their own schema migrations use [Statement] instead. On startup, a
// program can call [Verify] to check the table's schema. [Prune] deletes the rows of locks that are no longer used.
package ddl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/table"
)

// A flavor is what differs between the dialects.
type flavor struct {
	columns         string // of a lock table
	text, timestamp string // types, as a CREATE TABLE statement names them
	cast            string // the string type in a CAST
	space           string // the schema of a table whose name contains none
	dropExpiry      string
}

// flavorOf treats every dialect other than PostgreSQL as GoogleSQL.
func flavorOf(dialect databasepb.DatabaseDialect) flavor {
	if dialect == databasepb.DatabaseDialect_POSTGRESQL {
		return flavor{`(
    name      varchar NOT NULL PRIMARY KEY,
    heartbeat SPANNER.COMMIT_TIMESTAMP,
    token     SPANNER.COMMIT_TIMESTAMP,
    writer    varchar
)`, "varchar", "SPANNER.COMMIT_TIMESTAMP", "varchar", "public", "DROP TTL"}
	}
	return flavor{`(
    name      STRING(MAX) NOT NULL,
    heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true),
    token     TIMESTAMP OPTIONS (allow_commit_timestamp=true),
    writer    STRING(MAX),
) PRIMARY KEY (name)`, "STRING(MAX)", "TIMESTAMP OPTIONS (allow_commit_timestamp=true)", "STRING", "", "DROP ROW DELETION POLICY"}
}

// Statement returns the CREATE TABLE statement for a lock table with the given name, without a final semicolon. Every
// dialect other than PostgreSQL is treated as GoogleSQL. Statement inserts the name without checking it, unlike
// [Create] and [Verify].
func Statement(dialect databasepb.DatabaseDialect, table string) string {
	return "CREATE TABLE " + table + " " + flavorOf(dialect).columns
}

// Create creates the lock table if it does not exist. The path of the database has the form
// projects/P/instances/I/databases/D. Create detects the database's dialect. It blocks until the table can be used,
// which can take a minute. Several programs can call it at the same time.
//
// Create does not change a table that exists. Like [Verify], it returns a [*SchemaError] if that table is not a lock
// table. Creating a table requires the permission spanner.databases.updateDdl. If the table exists, Create does not
// need this permission.
//
// The options are passed to the Spanner clients, which also honor SPANNER_EMULATOR_HOST.
func Create(ctx context.Context, database, table string, opts ...option.ClientOption) error {
	if err := checkName(table); err != nil {
		return err
	}
	db, err := spanner.NewClientWithConfig(ctx, database, spanner.ClientConfig{DisableNativeMetrics: true},
		append([]option.ClientOption{option.WithGRPCConnectionPool(1)}, opts...)...)
	if err != nil {
		return fmt.Errorf("ddl: cannot connect to database %q (the path must have the form projects/P/instances/I/databases/D): %w", database, err)
	}
	defer db.Close()

	for {
		err := Verify(ctx, db, table)
		var schema *SchemaError
		if !errors.As(err, &schema) || !schema.missing {
			return err
		}
		switch err := execute(ctx, database, schema.dialect, table, opts); {
		case err != nil && !inTurn(ctx, err):
			return fmt.Errorf("ddl: cannot create table %s in %s: %w", table, database, err)
		case err == nil:
			return Verify(ctx, db, table)
		}
	}
}

// inTurn reports whether to try a schema change again. An emulator refuses a schema change while another one is in
// progress, whereas Spanner queues it. If err is such a refusal, inTurn waits briefly and returns true unless ctx ends.
// Before trying again, the caller must check whether the other schema change has created the table.
func inTurn(ctx context.Context, err error) bool {
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "concurrent schema change") {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

// execute runs the statement that creates the table, and waits for it to complete. The statement also succeeds if
// another program creates the table in the meantime.
func execute(ctx context.Context, path string, dialect databasepb.DatabaseDialect, table string, opts []option.ClientOption) error {
	admin, err := database.NewDatabaseAdminClient(ctx, opts...)
	if err != nil {
		return err
	}
	defer admin.Close()
	op, err := admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{
		Database:   path,
		Statements: []string{"CREATE TABLE IF NOT EXISTS " + table + " " + flavorOf(dialect).columns},
	})
	if err != nil {
		return err
	}
	return op.Wait(ctx)
}

// checkName accepts only plain identifiers, because names are inserted into statements unchanged.
func checkName(name string) error {
	if err := table.CheckTable(name); err != nil {
		return fmt.Errorf("ddl: %w", err)
	}
	return nil
}
