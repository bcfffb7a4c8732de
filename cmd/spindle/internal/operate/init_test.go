package operate

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
)

// commandOf returns a function that runs a command of this package.
func commandOf(of func(*database.Database) *cobra.Command, path string, args ...string) func() error {
	o := &database.Database{}
	root := &cobra.Command{Use: "spindle", SilenceErrors: true, SilenceUsage: true}
	root.SetOut(io.Discard)
	o.Flags(root.PersistentFlags())
	c := of(o)
	root.AddCommand(c)
	root.SetArgs(append([]string{c.Name(), "--db", path}, args...))
	return root.Execute
}

// runs runs a command of this package, and returns what it prints.
func runs(t *testing.T, of func(*database.Database) *cobra.Command, path string, args ...string) (out, said string, err error) {
	t.Helper()
	return prints(t, commandOf(of, path, args...))
}

const somewhere = "projects/my-project/instances/my-instance/databases/my-db"

// A mistake is found before the database is asked for anything, and what is at the edge of what is allowed is no mistake.
func TestACommandsFlagsAreCheckedBeforeAnythingIsDone(t *testing.T) {
	const passes = `--db "nowhere" is not a database path`
	for _, c := range []struct {
		of   func(*database.Database) *cobra.Command
		args string
		says string
	}{
		{NewPrune, "", passes},
		{NewPrune, "--older 0s", passes},
		{NewPrune, "--older -1ns", "--older -1ns: must not be negative"},
		{NewPrune, "--expired-older 24h", passes},
		{NewPrune, "--expired-older 23h59m59.999999999s", "--expired-older 23h59m59.999999999s: must be at least 24h0m0s"},
		{NewPrune, "--expired-older 0s", "--expired-older 0s: must be at least 24h0m0s"},
		{NewHandover, "job", passes},
		{NewHandover, "job --token 0 --wait 0s", passes},
		{NewHandover, "job --token 1 --wait 1ns", passes},
		{NewHandover, "job --token -1", "--token (-1) and --wait (0s) must not be negative"},
		{NewHandover, "job --wait -1ns", "--token (0) and --wait (-1ns) must not be negative"},
		{NewRelease, "job --token 1", passes},
		{NewRelease, "job", `no token given for "job"; use --token`},
		{NewRelease, "job --token 0 --yes", `no token given for "job"; use --token`},
		{NewRelease, "orders/member/0000 --token -1", `no token given for "orders/member/0000"; use --token`},
		{NewRelease, "orders/partition/7", passes}, // it is told what to release instead
		{NewDoctor, "", passes},
		{NewDoctor, "--expect a,b --expect b", passes},
		{NewDoctor, "--expect x_1763645616123456", "--expect: "},
		{NewInit, "", passes},
		{NewInit, "--create", passes},
		{NewInit, "--create --dialect postgresql", passes},
		{NewInit, "--print --create", "give only one of --print and --create"},
		{NewInit, "--dialect postgresql", "--dialect is only for --print and --create"},
		{NewInit, "--dialect googlesql", "--dialect is only for --print and --create"},
		{NewInit, "--print --table a;b", "--table: "},
	} {
		out, _, err := runs(t, c.of, "nowhere", strings.Fields(c.args)...)
		var exit *terminal.Exit
		require.ErrorAs(t, err, &exit, "%s", c.args)
		assert.Equal(t, terminal.Misused, exit.Code, c.args)
		assert.ErrorContains(t, err, c.says, c.args)
		assert.Empty(t, out, c.args)
	}
}

// The statement is printed alone, so that it can be a file, in the dialect and for the table that are given. The command that grants
// the role names the database, if there is one.
func TestThePrintedStatementCanBeAMigration(t *testing.T) {
	for args, want := range map[string]string{
		"--print":                     ddl.Statement(databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL, "locktable"),
		"--print --dialect googlesql": ddl.Statement(databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL, "locktable"),
		"--print --dialect postgresql --table my_locks":  ddl.Statement(databasepb.DatabaseDialect_POSTGRESQL, "my_locks"),
		"--print --dialect googlesql --table other.mine": ddl.Statement(databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL, "other.mine"),
	} {
		for path, names := range map[string][]string{somewhere: {"my-db", "my-project", "my-instance"}, "": {"D", "P", "I"}, "nowhere": {"D", "P", "I"}} {
			out, said, err := runs(t, NewInit, path, strings.Fields(args)...)
			require.NoError(t, err)
			assert.Equal(t, want+";\n", out)
			assert.Contains(t, said, "gcloud spanner databases add-iam-policy-binding "+names[0]+" \\\n    --project="+names[1]+" --instance="+names[2]+
				" \\\n    --role=roles/spanner.databaseUser --member=serviceAccount:NAME@"+names[1]+".iam.gserviceaccount.com\n")
		}
	}
}

// Without an emulator nothing is created, because it costs money: what to run is said, with the names of the database that is wanted.
func TestNothingIsCreatedOutsideAnEmulator(t *testing.T) {
	t.Setenv("SPANNER_EMULATOR_HOST", "")
	for dialect, name := range map[string]string{"googlesql": "GOOGLE_STANDARD_SQL", "postgresql": "POSTGRESQL"} {
		out, _, err := runs(t, NewInit, somewhere, "--create", "--dialect", dialect)
		var exit *terminal.Exit
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, terminal.Misused, exit.Code)
		assert.ErrorContains(t, err, `SPANNER_EMULATOR_HOST is not set. To create the database on Cloud Spanner, run:
  gcloud spanner instances create my-instance --project=my-project --config=CONFIG --description=my-instance --processing-units=100
  gcloud spanner databases create my-db --project=my-project --instance=my-instance --database-dialect=`+name+`
  spindle init --db `+somewhere+"\n")
		assert.Empty(t, out)
	}
}

// An emulator that does not answer is given up at the timeout.
func TestAnEmulatorThatDoesNotAnswerIsGivenUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	t.Setenv("SPANNER_EMULATOR_HOST", silent.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	assert.ErrorIs(t, createDatabase(ctx, &database.Database{Path: somewhere, Table: "locktable", Timeout: 50 * time.Millisecond}, databasepb.DatabaseDialect_POSTGRESQL), context.DeadlineExceeded)
	assert.NoError(t, ctx.Err(), "it waits for longer than the timeout")
}

// empty is a Spanner without a lock table. It creates nothing, and knows what it was last asked to create.
type empty struct {
	sppb.UnimplementedSpannerServer
	query     func(context.Context) error              // the answer to queries, if it is an error
	read      func(context.Context, *sppb.ReadRequest) // called before it says that there is no table
	databases databases
	instances instances
}

type databases struct {
	databasepb.UnimplementedDatabaseAdminServer
	dialect databasepb.DatabaseDialect
	until   time.Time // when the caller gives up a schema change
	caller  string    // the caller's user agent
}

type instances struct {
	instancepb.UnimplementedInstanceAdminServer
}

func (e *empty) serve(t *testing.T) {
	on, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	sppb.RegisterSpannerServer(g, e)
	databasepb.RegisterDatabaseAdminServer(g, &e.databases)
	instancepb.RegisterInstanceAdminServer(g, &e.instances)
	go func() { _ = g.Serve(on) }()
	t.Cleanup(g.Stop)
	t.Setenv("SPANNER_EMULATOR_HOST", on.Addr().String())
}

func (*empty) CreateSession(_ context.Context, r *sppb.CreateSessionRequest) (*sppb.Session, error) {
	return &sppb.Session{Name: r.GetDatabase() + "/sessions/s", Multiplexed: r.GetSession().GetMultiplexed()}, nil
}

func (*empty) BeginTransaction(context.Context, *sppb.BeginTransactionRequest) (*sppb.Transaction, error) {
	return &sppb.Transaction{Id: []byte("t")}, nil
}

func (e *empty) StreamingRead(r *sppb.ReadRequest, s sppb.Spanner_StreamingReadServer) error {
	if e.read != nil {
		e.read(s.Context(), r)
	}
	return status.Error(codes.NotFound, "Table not found: "+r.GetTable())
}

func (e *empty) ExecuteStreamingSql(_ *sppb.ExecuteSqlRequest, s sppb.Spanner_ExecuteStreamingSqlServer) error {
	if e.query != nil {
		if err := e.query(s.Context()); err != nil {
			return err
		}
	}
	return s.Send(&sppb.PartialResultSet{Metadata: &sppb.ResultSetMetadata{RowType: &sppb.StructType{}, Transaction: &sppb.Transaction{Id: []byte("t")}}})
}

func (d *databases) CreateDatabase(_ context.Context, r *databasepb.CreateDatabaseRequest) (*longrunningpb.Operation, error) {
	d.dialect = r.GetDatabaseDialect()
	return nil, status.Error(codes.AlreadyExists, "it exists")
}

func (d *databases) UpdateDatabaseDdl(ctx context.Context, _ *databasepb.UpdateDatabaseDdlRequest) (*longrunningpb.Operation, error) {
	d.until, _ = ctx.Deadline()
	d.caller = strings.Join(metadata.ValueFromIncomingContext(ctx, "user-agent"), "")
	return nil, status.Error(codes.Unimplemented, "not here")
}

func (*instances) CreateInstance(context.Context, *instancepb.CreateInstanceRequest) (*longrunningpb.Operation, error) {
	return nil, status.Error(codes.AlreadyExists, "it exists")
}

// Init creates the database only if that is wanted, and in the dialect that is wanted. A schema change may take minutes: --timeout is only for
// the answer of the database. If init is not permitted to look, or learns nothing, it changes nothing, and its user learns why. Each request
// names the program, so that a database's logs show which requests the program has sent.
func TestInitAsksForWhatIsWantedAndWaitsForIt(t *testing.T) {
	for args, want := range map[string]databasepb.DatabaseDialect{
		"":                              databasepb.DatabaseDialect_DATABASE_DIALECT_UNSPECIFIED,
		"--create":                      databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL,
		"--create --dialect googlesql":  databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL,
		"--create --dialect postgresql": databasepb.DatabaseDialect_POSTGRESQL,
	} {
		var callers []string
		e := &empty{}
		e.query = func(ctx context.Context) error {
			callers = append(callers, metadata.ValueFromIncomingContext(ctx, "user-agent")...)
			return nil
		}
		e.serve(t)
		began := time.Now()
		out, _, err := runs(t, NewInit, somewhere, append(strings.Fields(args), "--timeout", "20s")...)
		endsWith(t, err, "1: not here", args)
		assert.Empty(t, out)
		assert.Equal(t, want, e.databases.dialect, args)
		assert.Greater(t, e.databases.until.Sub(began), 40*time.Second, args)
		assert.NotEmpty(t, callers)
		for _, caller := range append(callers, e.databases.caller) {
			assert.Regexp(t, "^spindle ", caller)
		}
	}
	for _, c := range []struct {
		query   func(context.Context) error
		timeout string
		says    string
	}{
		{func(context.Context) error { return status.Error(codes.PermissionDenied, "no") }, "1h", "1: " + table.NoPermission.Command},
		{func(ctx context.Context) error { <-ctx.Done(); return nil }, "100ms", "1: the database can't be reached"},
	} {
		e := &empty{query: c.query}
		e.serve(t)
		done := make(chan error, 1)
		go func() { done <- commandOf(NewInit, somewhere, "--timeout", c.timeout)() }()
		select {
		case err := <-done:
			endsWith(t, err, c.says)
		case <-time.After(30 * time.Second):
			assert.Fail(t, "it goes on after --timeout")
		}
		assert.Zero(t, e.databases.until)
	}
}
