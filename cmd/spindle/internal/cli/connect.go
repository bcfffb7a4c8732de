package cli

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
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
)

// common has the flags of every command that uses the database.
type common struct {
	db      string
	table   string
	timeout time.Duration

	set *pflag.FlagSet // of these
}

func (o *common) flags(f *pflag.FlagSet) {
	o.set = f
	f.StringVar(&o.db, "db", "", "the database's `path`, projects/P/instances/I/databases/D")
	f.StringVar(&o.table, "table", "locktable", "the lock `table`")
	f.DurationVar(&o.timeout, "timeout", 20*time.Second, "how long to wait for the database")
	stderr.flag(f)
}

var databasePath = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/databases/[^/]+$`)

func (o *common) check() error {
	switch {
	case o.db == "":
		return misuse(`no database given: use --db or SPINDLE_DB, such as
  export SPINDLE_DB=projects/P/instances/I/databases/D
An emulator needs SPANNER_EMULATOR_HOST=host:port as well. "spindle demo" needs neither.`)
	case !databasePath.MatchString(o.db):
		return misuse("--db %q is not the path of a database: want projects/P/instances/I/databases/D, in full", o.db)
	case o.timeout <= 0:
		return misuse("--timeout %v: must be positive", o.timeout)
	}
	if err := table.CheckTable(o.table); err != nil {
		return misuse("--table: %w", err)
	}
	return nil
}

// open connects to the database.
func (o *common) open(opts ...option.ClientOption) (*connection, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	opts = append(opts, option.WithUserAgent("spindle"))
	dial := func() (*spanner.Client, error) {
		return spanner.NewClientWithConfig(context.Background(), o.db, spanner.ClientConfig{DisableNativeMetrics: true}, opts...)
	}
	db, err := dial()
	if err != nil {
		return nil, o.explain(err)
	}
	return &connection{table: o.table, dial: dial, db: db}, nil
}

// withTable runs a short task on the table.
func (o *common) withTable(ctx context.Context, do func(context.Context, table.Table) error) error {
	db, err := o.open(option.WithGRPCConnectionPool(1))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return o.explain(do(ctx, db.audibly(o)))
}

// Explain is for execcmd.
func (o *common) Explain(err error) error { return o.explain(err) }

// explain adds what to do about it to an error of the database.
func (o *common) explain(err error) error {
	var e *exit
	var schema *ddl.SchemaError
	if err == nil || errors.As(err, &e) {
		return err
	}
	hint := ""
	text := err.Error()
	switch code := spanner.ErrCode(err); {
	case errors.As(err, &schema):
		return fmt.Errorf("table %s in %s is not a lock table: %s: spindle init creates it if it is missing, and spindle init --print shows the schema it must have",
			schema.Table, o.db, strings.Join(schema.Problems, "; "))
	case strings.Contains(text, "default credentials"):
		hint = "gcloud auth application-default login gives you credentials; an emulator needs SPANNER_EMULATOR_HOST"
	case code == codes.NotFound && strings.Contains(text, "Table not found"):
		hint = "is --table right? spindle init creates the table"
	case table.DatabaseMissing(err):
		hint = "is --db right? gcloud spanner databases list shows what exists"
		if os.Getenv("SPANNER_EMULATOR_HOST") != "" {
			hint = "is --db right? On an emulator, spindle init --create makes it"
		}
	case code == codes.InvalidArgument || code == codes.FailedPrecondition:
		hint = "is it a lock table? spindle init says what is wrong with it"
	case code == codes.PermissionDenied || code == codes.Unauthenticated:
		hint = "spindle init --print lists the roles that are needed"
	case code == codes.DeadlineExceeded || code == codes.Unavailable || errors.Is(err, context.DeadlineExceeded):
		hint = "the database can't be reached"
		if host := os.Getenv("SPANNER_EMULATOR_HOST"); host != "" {
			hint += ": does an emulator run at SPANNER_EMULATOR_HOST=" + host + "?"
		}
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w\n  %s", err, hint)
}
