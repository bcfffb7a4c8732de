package ddl_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

const (
	googleSQL  = databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL
	postgreSQL = databasepb.DatabaseDialect_POSTGRESQL
)

func needEmulator(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an emulator")
	}
}

// eachDialect runs a test on a database of either dialect.
func eachDialect(t *testing.T, test func(*testing.T, *spindletest.Database)) {
	needEmulator(t)
	t.Run("GoogleSQL", func(t *testing.T) { t.Parallel(); test(t, spindletest.New(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); test(t, spindletest.New(t, spindletest.PostgreSQL())) })
}

// dialing returns the options of a client of the database that dials with opt.
func dialing(db *spindletest.Database, opt grpc.DialOption) []option.ClientOption {
	return append(db.ClientOptions(), option.WithGRPCDialOption(opt))
}

// connect returns a client of the database that dials with opt.
func connect(t *testing.T, db *spindletest.Database, opt grpc.DialOption) *spanner.Client {
	t.Helper()
	client, err := spanner.NewClientWithConfig(context.Background(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true}, dialing(db, opt)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func TestCreateSucceedsForEveryoneWhoCallsItAtOnce(t *testing.T) {
	eachDialect(t, func(t *testing.T, db *spindletest.Database) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				assert.NoError(t, ddl.Create(t.Context(), db.Path, "mine", db.ClientOptions()...))
			})
		}
		wg.Wait()
	})
}

func TestCreateLeavesAWrongTableAloneAndSaysWhatIsWrong(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t, spindletest.WithDDL("CREATE TABLE mine (name STRING(36)) PRIMARY KEY (name)"))
	err := ddl.Create(t.Context(), db.Path, "mine", db.ClientOptions()...)
	var wrong *ddl.SchemaError
	require.ErrorAs(t, err, &wrong)
	require.Len(t, wrong.Problems, 4)
}

// If another program creates the table after Create has looked for it, Create verifies that table and says what is wrong
// with it.
func TestCreateVerifiesATableThatAnotherProgramCreatesMeanwhile(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	first := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if change, ok := req.(*databasepb.UpdateDatabaseDdlRequest); ok {
			change.Statements = append([]string{"CREATE TABLE mine (name STRING(36)) PRIMARY KEY (name)"}, change.Statements...)
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	err := ddl.Create(t.Context(), db.Path, "mine", dialing(db, grpc.WithChainUnaryInterceptor(first))...)
	var wrong *ddl.SchemaError
	require.ErrorAs(t, err, &wrong)
	require.Len(t, wrong.Problems, 4)
}

// Spanner may take a minute to change a schema. Create returns once the table exists.
func TestCreateWaitsUntilTheSchemaHasChanged(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	db := spindletest.New(t)
	var change func(ctx context.Context, reply any) error
	polls := 0
	later := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		switch {
		case strings.HasSuffix(method, "/UpdateDatabaseDdl"):
			change = func(ctx context.Context, reply any) error { return invoke(ctx, method, req, reply, cc, opts...) }
			op := reply.(proto.Message).ProtoReflect()
			op.Set(op.Descriptor().Fields().ByName("name"), protoreflect.ValueOfString(db.Path+"/operations/slow"))
			return nil
		case strings.HasSuffix(method, "/GetOperation"):
			if polls++; polls == 1 {
				return nil // it is not done
			}
			return change(ctx, reply)
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	require.NoError(t, ddl.Create(t.Context(), db.Path, "mine", dialing(db, grpc.WithChainUnaryInterceptor(later))...))
	require.Equal(t, 2, polls)
	require.NoError(t, ddl.Verify(t.Context(), db.Client, "mine"))
}

// Create tries a schema change again only if it was refused because of another one. Any other refusal lasts, so a caller learns of it at once.
func TestCreateTriesAgainOnlyAfterAnotherSchemaChange(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	db := spindletest.New(t)
	const busy = "a concurrent schema change operation is in progress"
	for table, x := range map[string]struct {
		answer error
		tries  int
	}{
		"busy":    {status.Error(codes.FailedPrecondition, busy), 2},
		"refused": {status.Error(codes.FailedPrecondition, "there are too many tables"), 1},
		"aborted": {status.Error(codes.Aborted, busy), 1},
		"denied":  {status.Error(codes.PermissionDenied, "no"), 1},
	} {
		tries := 0
		refuse := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if strings.HasSuffix(method, "/UpdateDatabaseDdl") {
				if tries++; tries == 1 {
					return x.answer
				}
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		err := ddl.Create(t.Context(), db.Path, table, dialing(db, grpc.WithChainUnaryInterceptor(refuse))...)
		assert.Equal(t, x.tries, tries, table)
		if x.tries > 1 {
			assert.NoError(t, err, table)
		} else {
			assert.ErrorContains(t, err, "cannot create table "+table, table)
			assert.ErrorIs(t, err, x.answer, table)
		}
	}
}

func TestCreateSaysWhichDatabaseItCannotUse(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	err := ddl.Create(t.Context(), "mydb", "mine", db.ClientOptions()...)
	require.ErrorContains(t, err, `"mydb"`)
	require.ErrorContains(t, err, "projects/P/instances/I/databases/D")
}

func TestNamesThatAreNoIdentifiersAreRefusedBeforeAnyRPC(t *testing.T) {
	for _, name := range []string{"", "1a", "a b", "a.b.c", ".a", "a.", "a;b", "a`", "a--", "ä", strings.Repeat("a", 129)} {
		err := ddl.Verify(t.Context(), nil, name) // which would panic if it were used
		require.ErrorContains(t, err, "is not an identifier", "%q", name)
		err = ddl.Create(t.Context(), "projects/p/instances/i/databases/d", name)
		require.ErrorContains(t, err, "is not an identifier", "%q", name)
	}
}

// Verify returns the error of whichever query fails. If it judged a table by the queries before, an operator might alter a
// correct table.
func TestVerifyPassesOnTheErrorsOfQueries(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	for fails := int64(1); ; fails++ {
		var sent atomic.Int64
		refuse := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(method, "/ExecuteStreamingSql") && sent.Add(1) == fails {
				return nil, status.Error(codes.PermissionDenied, "no")
			}
			return streamer(ctx, desc, cc, method, opts...)
		}
		err := ddl.Verify(t.Context(), connect(t, db, grpc.WithChainStreamInterceptor(refuse)), db.Table)
		if sent.Load() < fails {
			require.NoError(t, err)
			require.Greater(t, fails, int64(1))
			return
		}
		require.Equal(t, codes.PermissionDenied, spanner.ErrCode(err), "query %d: %v", fails, err)
	}
}

// holdAndRelease writes the longest name and value that a lock may have.
func holdAndRelease(t *testing.T, db *spindletest.Database, table string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := lock.New(db.Client, table, strings.Repeat("n", 4096), spindle.WithValue(strings.Repeat("\x00", 64<<10)))
	require.NoError(t, m.Lock(ctx))
	require.NoError(t, m.Unlock(ctx))
}

// A table that Create makes or finds, in whatever schema, is one that Verify passes, and that locks work in under the same
// name, in whatever case.
func TestATableIsTheSameForVerifyAndForLocks(t *testing.T) {
	needEmulator(t)
	for dialect, tables := range map[databasepb.DatabaseDialect][]string{
		googleSQL:  {"LockTable", "LOCKTABLE", "named.mine", "Named.Mine"},
		postgreSQL: {"LockTable", "LOCKTABLE", "named.mine", "Named.Mine", "public.locktable", "Public.Mine"},
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			opts := []spindletest.Option{spindletest.WithDDL("CREATE SCHEMA named")}
			if dialect == postgreSQL {
				opts = append(opts, spindletest.PostgreSQL())
			}
			db := spindletest.New(t, opts...)
			for _, table := range tables {
				require.NoError(t, ddl.Create(t.Context(), db.Path, table, db.ClientOptions()...))
				require.NoError(t, ddl.Verify(t.Context(), db.Client, table))
				holdAndRelease(t, db, table)
			}
		})
	}
}

func TestVerifyNamesEverythingThatIsWrong(t *testing.T) {
	needEmulator(t)
	const times, pgTimes = `heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true), token TIMESTAMP OPTIONS (allow_commit_timestamp=true)`,
		`heartbeat SPANNER.COMMIT_TIMESTAMP, token SPANNER.COMMIT_TIMESTAMP`
	const rest, pgRest = times + `, writer STRING(MAX)`, pgTimes + `, writer varchar`
	tests := []struct {
		behaviour string
		dialect   databasepb.DatabaseDialect
		statement string // empty for no table; several are parted by semicolons
		want      []string
	}{
		{"missing table", googleSQL, "", []string{"the table is missing"}},
		{"strings that are long enough are fine", googleSQL,
			"CREATE TABLE t (name STRING(4113), " + times + ", writer STRING(2500000)) PRIMARY KEY (name)", nil},
		{"strings that are too short", googleSQL,
			"CREATE TABLE t (name STRING(4112), " + times + ", writer STRING(0x24)) PRIMARY KEY (name)", []string{
				"column name is STRING(4112), but must be STRING(MAX) to hold up to 4113 characters",
				"column writer is STRING(36), but must be STRING(MAX) to hold up to 2500000 characters"}},
		{"columns that locks could not make NULL", googleSQL,
			"CREATE TABLE t (name STRING(MAX), heartbeat TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true), token TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true), writer STRING(MAX) NOT NULL) PRIMARY KEY (name)", []string{
				"column heartbeat must be nullable, because locks write NULL to it",
				"column token must be nullable, because locks write NULL to it",
				"column writer must be nullable, because locks write NULL to it"}},
		{"a generated column", googleSQL,
			"CREATE TABLE t (name STRING(MAX), " + times + ", writer STRING(MAX) AS (name) STORED) PRIMARY KEY (name)",
			[]string{"column writer must not be generated, because locks write to it"}},
		{"a row deletion policy", googleSQL,
			"CREATE TABLE t (name STRING(MAX), " + rest + ") PRIMARY KEY (name), ROW DELETION POLICY (OLDER_THAN(heartbeat, INTERVAL 3 DAY))",
			[]string{"the table must not have a row deletion policy (OLDER_THAN(heartbeat, INTERVAL 3 DAY)), because it would delete locks that are held; to drop it, run ALTER TABLE t DROP ROW DELETION POLICY"}},
		{"a parent table", googleSQL,
			"CREATE TABLE p (name STRING(MAX)) PRIMARY KEY (name);CREATE TABLE t (name STRING(MAX), " + rest + ") PRIMARY KEY (name), INTERLEAVE IN PARENT p",
			[]string{"the table must not be interleaved in p, because inserts would need a parent row"}},
		{"unique indexes", googleSQL,
			"CREATE TABLE t (name STRING(MAX), " + rest + ") PRIMARY KEY (name);CREATE UNIQUE INDEX fine ON t (name, token);CREATE UNIQUE INDEX one ON t (writer, token);CREATE UNIQUE INDEX two ON t (writer)", []string{
				"index one on (writer, token) must not be unique, because the rows of two locks could conflict",
				"index two on (writer) must not be unique, because the rows of two locks could conflict"}},
		{"indexes that exclude nothing are fine", googleSQL,
			"CREATE TABLE t (name STRING(MAX), " + rest + ") PRIMARY KEY (name);CREATE INDEX young ON t (token);CREATE UNIQUE INDEX wide ON t (token, name) STORING (heartbeat)", nil},
		{"columns that can be left out are fine", googleSQL,
			"CREATE TABLE t (name STRING(MAX) NOT NULL, " + rest + ", a INT64, b INT64 NOT NULL DEFAULT (1), c STRING(MAX) NOT NULL AS (name) STORED) PRIMARY KEY (name)", nil},
		{"missing columns", googleSQL,
			"CREATE TABLE t (name STRING(MAX)) PRIMARY KEY (name)", []string{
				"column heartbeat is missing, want TIMESTAMP OPTIONS (allow_commit_timestamp=true)",
				"column token is missing, want TIMESTAMP OPTIONS (allow_commit_timestamp=true)",
				"column writer is missing, want STRING(MAX)"}},
		{"wrong types", googleSQL,
			"CREATE TABLE t (name INT64, heartbeat STRING(MAX), token DATE, writer BYTES(16)) PRIMARY KEY (name)", []string{
				"column name is INT64, want STRING(MAX)",
				"column heartbeat is STRING(MAX), want TIMESTAMP OPTIONS (allow_commit_timestamp=true)",
				"column token is DATE, want TIMESTAMP OPTIONS (allow_commit_timestamp=true)",
				"column writer is BYTES(16), want STRING(MAX)"}},
		{"timestamps without commit timestamps", googleSQL,
			"CREATE TABLE t (name STRING(MAX), heartbeat TIMESTAMP, token TIMESTAMP OPTIONS (allow_commit_timestamp=false), writer STRING(MAX)) PRIMARY KEY (name)", []string{
				"column heartbeat is TIMESTAMP without allow_commit_timestamp, want TIMESTAMP OPTIONS (allow_commit_timestamp=true)",
				"column token is TIMESTAMP without allow_commit_timestamp, want TIMESTAMP OPTIONS (allow_commit_timestamp=true)"}},
		{"another primary key", googleSQL,
			"CREATE TABLE t (name STRING(MAX), " + rest + ") PRIMARY KEY (name, token)",
			[]string{"the primary key must be (name), not (name, token)"}},
		{"a primary key from the last name to the first", googleSQL,
			"CREATE TABLE t (name STRING(MAX), " + rest + ") PRIMARY KEY (name DESC)",
			[]string{"the primary key must be (name), not (name DESC), because reads of name ranges would find nothing; to change the order, drop and recreate the table, or use a different table"}},
		{"no primary key", googleSQL,
			"CREATE TABLE t (name STRING(MAX), " + rest + ") PRIMARY KEY ()",
			[]string{"the primary key must be (name), not ()"}},
		{"a further column that inserts would have to give", googleSQL,
			"CREATE TABLE t (name STRING(MAX), " + rest + ", a INT64 NOT NULL) PRIMARY KEY (name)",
			[]string{"inserts omit column a, so it must be nullable, have a default, or be dropped"}},

		{"missing table", postgreSQL, "", []string{"the table is missing"}},
		{"strings that are long enough are fine", postgreSQL,
			"CREATE TABLE t (name varchar(4113) PRIMARY KEY, " + pgTimes + ", writer varchar(2500000))", nil},
		{"any text is fine", postgreSQL,
			"CREATE TABLE t (name text PRIMARY KEY, " + pgTimes + ", writer text)", nil},
		{"strings that are too short", postgreSQL,
			"CREATE TABLE t (name varchar(4112) PRIMARY KEY, " + pgTimes + ", writer varchar(36))", []string{
				"column name is character varying(4112), but must be varchar to hold up to 4113 characters",
				"column writer is character varying(36), but must be varchar to hold up to 2500000 characters"}},
		{"columns that locks could not make NULL", postgreSQL,
			"CREATE TABLE t (name varchar PRIMARY KEY, heartbeat SPANNER.COMMIT_TIMESTAMP NOT NULL, token SPANNER.COMMIT_TIMESTAMP NOT NULL, writer varchar NOT NULL)", []string{
				"column heartbeat must be nullable, because locks write NULL to it",
				"column token must be nullable, because locks write NULL to it",
				"column writer must be nullable, because locks write NULL to it"}},
		{"a generated column", postgreSQL,
			"CREATE TABLE t (name varchar PRIMARY KEY, " + pgTimes + ", writer varchar GENERATED ALWAYS AS (name) STORED)",
			[]string{"column writer must not be generated, because locks write to it"}},
		{"a row deletion policy", postgreSQL,
			"CREATE TABLE t (name varchar PRIMARY KEY, " + pgRest + ") TTL INTERVAL '3 days' ON heartbeat",
			[]string{"the table must not have a row deletion policy (INTERVAL '3 DAYS' ON heartbeat), because it would delete locks that are held; to drop it, run ALTER TABLE t DROP TTL"}},
		{"a parent table", postgreSQL,
			"CREATE TABLE p (name varchar PRIMARY KEY);CREATE TABLE t (name varchar PRIMARY KEY, " + pgRest + ") INTERLEAVE IN PARENT p",
			[]string{"the table must not be interleaved in p, because inserts would need a parent row"}},
		{"unique indexes", postgreSQL,
			"CREATE TABLE t (name varchar PRIMARY KEY, " + pgRest + ");CREATE UNIQUE INDEX fine ON t (name, token);CREATE UNIQUE INDEX one ON t (writer, token);CREATE UNIQUE INDEX two ON t (writer)", []string{
				"index one on (writer, token) must not be unique, because the rows of two locks could conflict",
				"index two on (writer) must not be unique, because the rows of two locks could conflict"}},
		{"indexes that exclude nothing are fine", postgreSQL,
			"CREATE TABLE t (name varchar PRIMARY KEY, " + pgRest + ");CREATE INDEX young ON t (token);CREATE UNIQUE INDEX wide ON t (token, name) INCLUDE (heartbeat)", nil},
		{"columns that can be left out are fine", postgreSQL,
			"CREATE TABLE t (name varchar PRIMARY KEY, " + pgRest + ", a bigint, b bigint NOT NULL DEFAULT 1)", nil},
		{"missing columns", postgreSQL,
			"CREATE TABLE t (name varchar PRIMARY KEY)", []string{
				"column heartbeat is missing, want SPANNER.COMMIT_TIMESTAMP",
				"column token is missing, want SPANNER.COMMIT_TIMESTAMP",
				"column writer is missing, want varchar"}},
		{"wrong types", postgreSQL,
			"CREATE TABLE t (name bigint PRIMARY KEY, heartbeat varchar, token timestamptz, writer bytea)", []string{
				"column name is bigint, want varchar",
				"column heartbeat is character varying, want SPANNER.COMMIT_TIMESTAMP",
				"column token is timestamp with time zone, want SPANNER.COMMIT_TIMESTAMP",
				"column writer is bytea, want varchar"}},
		{"arrays", postgreSQL,
			"CREATE TABLE t (name varchar PRIMARY KEY, " + pgTimes + ", writer varchar(36)[])", []string{
				"column writer is character varying(36)[], want varchar"}},
		{"another primary key", postgreSQL,
			"CREATE TABLE t (name varchar, " + pgRest + ", PRIMARY KEY (token, name))",
			[]string{"column token must be nullable, because locks write NULL to it", "the primary key must be (name), not (token, name)"}},
		{"a further column that inserts would have to give", postgreSQL,
			"CREATE TABLE t (name varchar PRIMARY KEY, " + pgRest + ", a bigint NOT NULL)",
			[]string{"inserts omit column a, so it must be nullable, have a default, or be dropped"}},
	}
	for _, tt := range tests {
		t.Run(tt.dialect.String()+"/"+tt.behaviour, func(t *testing.T) {
			var opts []spindletest.Option
			if tt.dialect == postgreSQL {
				opts = append(opts, spindletest.PostgreSQL())
			}
			if tt.statement != "" {
				opts = append(opts, spindletest.WithDDL(strings.Split(tt.statement, ";")...))
			}
			db := spindletest.New(t, opts...)

			err := ddl.Verify(t.Context(), db.Client, "t")
			if tt.want == nil {
				require.NoError(t, err)
				holdAndRelease(t, db, "t")
				return
			}
			var wrong *ddl.SchemaError
			require.ErrorAs(t, err, &wrong)
			assert.Equal(t, "t", wrong.Table)
			assert.Equal(t, tt.want, wrong.Problems)
			advice := "alter the table to match this statement, or use a different table"
			if tt.statement == "" {
				advice = "call ddl.Create or run this statement"
			}
			assert.ErrorContains(t, err, fmt.Sprintf("to fix this, %s:\n%s", advice, ddl.Statement(tt.dialect, "t")), "the message tells how to mend")
		})
	}
}
