// Package ddl creates, verifies and prunes the lock table.
//
// The table has one row for each lock. [Statement] is for programs with schema migrations of their own; [Create] is for
// all others. [Verify] checks, at the start of a program, that the table is correct. [Prune] removes the rows of locks
// that are not used any more.
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

const googleSQL = `(
    name      STRING(MAX) NOT NULL,
    heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true),
    token     TIMESTAMP OPTIONS (allow_commit_timestamp=true),
    writer    STRING(MAX),
) PRIMARY KEY (name)`

const postgreSQL = `(
    name      varchar NOT NULL PRIMARY KEY,
    heartbeat SPANNER.COMMIT_TIMESTAMP,
    token     SPANNER.COMMIT_TIMESTAMP,
    writer    varchar
)`

// Statement returns the CREATE TABLE statement of a lock table with the given name, without a final semicolon. Any
// dialect but PostgreSQL means GoogleSQL. The name is written as it is: only [Create] and [Verify] check it.
func Statement(dialect databasepb.DatabaseDialect, table string) string {
	return "CREATE TABLE " + table + " " + columns(dialect)
}

func columns(dialect databasepb.DatabaseDialect) string {
	if dialect == databasepb.DatabaseDialect_POSTGRESQL {
		return postgreSQL
	}
	return googleSQL
}

// Create creates the lock table in a database, whose path has the form projects/P/instances/I/databases/D, unless the
// table exists. It finds the database's dialect itself, and blocks until the table can be used, which can take a
// minute. Several programs may call it at once.
//
// A table that exists is not changed: like [Verify], Create returns a [*SchemaError] if it is not a lock table. To
// create a table, it needs the permission spanner.databases.updateDdl; for an existing table it does not.
//
// The options are those of the Spanner clients. These also follow SPANNER_EMULATOR_HOST.
func Create(ctx context.Context, database, table string, opts ...option.ClientOption) error {
	if err := checkName(table); err != nil {
		return err
	}
	db, err := spanner.NewClientWithConfig(ctx, database, spanner.ClientConfig{DisableNativeMetrics: true},
		append([]option.ClientOption{option.WithGRPCConnectionPool(1)}, opts...)...)
	if err != nil {
		return fmt.Errorf("ddl: cannot connect to database %q, whose form should be projects/P/instances/I/databases/D: %w", database, err)
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

// inTurn waits a moment if an emulator refuses to change a schema because another change is under way: Spanner itself
// queues such changes. The other change may have made the table.
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

// execute runs the statement that creates the table, and waits for its end. The table may exist by then, because
// another program may have created it.
func execute(ctx context.Context, path string, dialect databasepb.DatabaseDialect, table string, opts []option.ClientOption) error {
	admin, err := database.NewDatabaseAdminClient(ctx, opts...)
	if err != nil {
		return err
	}
	defer admin.Close()
	op, err := admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{
		Database:   path,
		Statements: []string{"CREATE TABLE IF NOT EXISTS " + table + " " + columns(dialect)},
	})
	if err != nil {
		return err
	}
	return op.Wait(ctx)
}

// checkName refuses anything but a name, since names are written into statements as they are.
func checkName(name string) error {
	if err := table.CheckTable(name); err != nil {
		return fmt.Errorf("ddl: %w", err)
	}
	return nil
}
