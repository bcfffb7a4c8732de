// Package database connects the commands to their database.
//
//   - database.go: the flags that select the database, and hints for database errors
//   - connection.go: a client that is replaced when it loses its session, and the message about a slow database
//   - notifications.go: the socket for notifications between the processes that use the database
package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/pflag"
	"google.golang.org/api/option"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
)

// Database has the flags of every command that uses the database.
type Database struct {
	Path    string
	Table   string
	Timeout time.Duration

	FlagSet *pflag.FlagSet // the set that has these flags
}

// Flags adds these flags, and the flag for the format of messages.
func (o *Database) Flags(f *pflag.FlagSet) {
	o.FlagSet = f
	f.StringVar(&o.Path, "db", "", "the database's `path`, projects/P/instances/I/databases/D")
	f.StringVar(&o.Table, "table", "locktable", "the lock `table`")
	f.DurationVar(&o.Timeout, "timeout", 20*time.Second, "how long to wait for the database")
	terminal.Stderr.Flag(f)
}

// ValidPath matches a database path.
var ValidPath = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/databases/[^/]+$`)

// Check returns an error if the flags are wrong.
func (o *Database) Check() error {
	switch {
	case o.Path == "":
		return terminal.Misuse(`no database given; use --db or set SPINDLE_DB, for example:
  export SPINDLE_DB=projects/P/instances/I/databases/D
To use an emulator, also set SPANNER_EMULATOR_HOST=host:port. To try spindle without a database of your own, run "spindle demo".`)
	case !ValidPath.MatchString(o.Path):
		return terminal.Misuse("--db %q is not a database path; give the full path, projects/P/instances/I/databases/D", o.Path)
	case o.Timeout <= 0:
		return terminal.Misuse("--timeout %v: must be positive", o.Timeout)
	}
	if err := table.CheckTable(o.Table); err != nil {
		return terminal.Misuse("--table: %w", err)
	}
	return nil
}

// Open connects to the database. Without options, the client is suited to a command that makes only a few requests.
func (o *Database) Open(opts ...option.ClientOption) (*Connection, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if len(opts) == 0 {
		opts = []option.ClientOption{option.WithGRPCConnectionPool(1)}
		for _, o := range table.DialOptions() {
			opts = append(opts, option.WithGRPCDialOption(o))
		}
	}
	opts = append(opts, option.WithUserAgent("spindle"))
	dial := func() (*spanner.Client, error) {
		return spanner.NewClientWithConfig(context.Background(), o.Path, spanner.ClientConfig{DisableNativeMetrics: true}, opts...)
	}
	db, err := dial()
	if err != nil {
		if os.Getenv("SPANNER_EMULATOR_HOST") == "" { // nothing has been sent yet, so this is about the credentials
			err = fmt.Errorf("%w\n  %s", err, table.NoCredentials.Command)
		}
		return nil, err
	}
	return &Connection{table: o.Table, dial: dial, db: db, calls: map[*spanner.Client]int{}}, nil
}

// WithTable passes the lock table to a task, which must finish within the timeout.
func (o *Database) WithTable(ctx context.Context, do func(context.Context, table.Table) error) error {
	db, err := o.Open()
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	return o.Explain(do(ctx, db.Audibly(o)))
}

// Explain adds a hint to a database error.
func (o *Database) Explain(err error) error {
	var e *terminal.Exit
	var schema *ddl.SchemaError
	if err == nil || errors.As(err, &e) {
		return err
	}
	if errors.As(err, &schema) {
		return fmt.Errorf("table %s in %s is not a lock table: %s\n  to create a missing table, run spindle init; to see the required schema, run spindle init --print",
			schema.Table, o.Path, strings.Join(schema.Problems, "; "))
	}
	fault, emulator := table.FaultOf(err), os.Getenv("SPANNER_EMULATOR_HOST")
	hint := fault.Command
	switch {
	case emulator == "":
	case fault == table.NoDatabase:
		hint = "check --db, or create the database on the emulator with spindle init --create"
	case fault == table.Unreachable:
		hint += "; check that the emulator at SPANNER_EMULATOR_HOST=" + emulator + " is running"
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w\n  %s", err, hint)
}

// Passing reports whether an error may soon go away without any action.
func Passing(err error) bool { return table.FaultOf(err).Kind == table.Outage }
