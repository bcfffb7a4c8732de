package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/spf13/cobra"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/emulator"
)

var dialects = map[string]databasepb.DatabaseDialect{
	"googlesql":  databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL,
	"postgresql": databasepb.DatabaseDialect_POSTGRESQL,
}

// NewInit returns the command init.
func NewInit(o *database.Database) *cobra.Command {
	var onlyPrint, create bool
	dialect := terminal.Choose("string", "googlesql", "postgresql")
	c := &cobra.Command{
		Use:   "init",
		Short: "Create or verify the lock table",
		Long: `Init creates the lock table in the database's dialect. If the table already
exists, init checks its schema, but never changes it. Init also prints the IAM
roles that spindle needs, and a command that grants one of them.

With --create, init first creates the instance and the database that --db names,
if they don't exist yet. It does so only on an emulator. On Cloud Spanner, where
an instance costs money and you have to choose its size and location, --create
only prints the commands to run.

With --print, init prints the SQL statement that creates the table, for example
to add it to your migrations. It prints the roles to standard error. It does not
connect to a database.
` + terminal.CommonCodes,
		Example: `  spindle init --db projects/P/instances/I/databases/D
  SPANNER_EMULATOR_HOST=localhost:9010 spindle init --create --db projects/test/instances/test/databases/test
  spindle init --print --dialect postgresql --table my_locks`,
		Args: terminal.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case onlyPrint && create:
				return terminal.Misuse("give only one of --print and --create")
			case onlyPrint:
				return printSchema(o, dialects[dialect.Value])
			case create:
				if err := createDatabase(c.Context(), o, dialects[dialect.Value]); err != nil {
					return err
				}
			case c.Flags().Changed("dialect"):
				return terminal.Misuse("--dialect is only for --print and --create; the dialect of an existing database is detected")
			}
			return initialize(c.Context(), o)
		},
	}
	c.Flags().BoolVar(&onlyPrint, "print", false, "only print the SQL statement that creates the table")
	c.Flags().BoolVar(&create, "create", false, "on an emulator, also create the instance and the database")
	c.Flags().Var(&dialect, "dialect", "the `dialect` for --create and --print, googlesql or postgresql")
	terminal.OnlyOnCommandLine(c.Flags(), "create")
	return c
}

func printSchema(o *database.Database, dialect databasepb.DatabaseDialect) error {
	if err := table.CheckTable(o.Table); err != nil {
		return terminal.Misuse("--table: %w", err)
	}
	_, err := fmt.Println(ddl.Statement(dialect, o.Table) + ";")
	printRoles(os.Stderr, o.Path)
	return err
}

// createDatabase creates the instance and the database that --db names, unless they exist. On Cloud Spanner, it returns
// an error that contains the commands to run instead.
func createDatabase(ctx context.Context, o *database.Database, dialect databasepb.DatabaseDialect) error {
	if err := o.Check(); err != nil {
		return err
	}
	project, inst, db := partsOf(o.Path)
	if os.Getenv("SPANNER_EMULATOR_HOST") == "" {
		return terminal.Misuse(`--create works only on an emulator, but SPANNER_EMULATOR_HOST is not set. To create the database on Cloud Spanner, run:
  gcloud spanner instances create %[2]s --project=%[1]s --config=CONFIG --description=%[2]s --processing-units=100
  gcloud spanner databases create %[3]s --project=%[1]s --instance=%[2]s --database-dialect=%[4]s
  spindle init --db %[5]s
To list the values for CONFIG, run: gcloud spanner instance-configs list`, project, inst, db, dialect, o.Path)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	e, err := emulator.Open(ctx)
	if err != nil {
		return err
	}
	if err = e.CreateDatabaseAgain(ctx, o.Path, dialect); status.Code(err) == codes.InvalidArgument {
		return err // an id is invalid, and the error says why
	}
	return o.Explain(err)
}

func initialize(ctx context.Context, o *database.Database) error {
	db, err := o.Open()
	if err != nil {
		return err
	}
	defer db.Close()
	ask, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	answered := o.Audible()
	defer answered()
	var schema *ddl.SchemaError
	done := "exists and is correct"
	if err := ddl.Verify(ask, db.Client(), o.Table); errors.As(err, &schema) {
		answered()
		// No timeout, because a schema change can take minutes.
		if err := ddl.Create(ctx, o.Path, o.Table, option.WithUserAgent("spindle")); err != nil {
			return o.Explain(err)
		}
		done = "was created"
	} else if err != nil {
		return o.Explain(err)
	}
	_, err = fmt.Printf("Table %s in %s %s.\n\n", o.Table, o.Path, done)
	printRoles(os.Stdout, o.Path)
	return err
}

// partsOf splits a database path.
func partsOf(path string) (project, instance, name string) {
	parts := strings.Split(path, "/")
	return parts[1], parts[3], parts[5]
}

func printRoles(f *os.File, db string) {
	project, instance, name := "P", "I", "D"
	if database.ValidPath.MatchString(db) {
		project, instance, name = partsOf(db)
	}
	fmt.Fprintf(f, `Roles on the database:
  roles/spanner.databaseUser    to create the table, and to hold and change locks:
                                init, exec, guard, agent, handover, release,
                                prune, doctor, and Go programs
  roles/spanner.databaseReader  to view locks: ls, watch, status, members, serve

  gcloud spanner databases add-iam-policy-binding %s \
    --project=%s --instance=%s \
    --role=roles/spanner.databaseUser --member=serviceAccount:NAME@%[2]s.iam.gserviceaccount.com
`, name, project, instance)
}
