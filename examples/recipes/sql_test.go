package recipes

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/spindletest"
)

// conn is a minimal database/sql driver that uses the Spanner client. It supports only transactions and statements with
// numbered parameters, which is all that the test needs.
type conn struct {
	db  *spanner.Client
	txn *spanner.ReadWriteStmtBasedTransaction
}

func (c *conn) Connect(context.Context) (driver.Conn, error) { return &conn{db: c.db}, nil }
func (c *conn) Driver() driver.Driver                        { return nil }
func (c *conn) Close() error                                 { return nil }
func (c *conn) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (c *conn) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }

func (c *conn) BeginTx(ctx context.Context, _ driver.TxOptions) (_ driver.Tx, err error) {
	c.txn, err = spanner.NewReadWriteStmtBasedTransaction(ctx, c.db)
	return c, err
}

func (c *conn) ExecContext(ctx context.Context, sql string, args []driver.NamedValue) (driver.Result, error) {
	params := map[string]any{}
	for _, a := range args {
		params[fmt.Sprintf("p%d", a.Ordinal)] = a.Value
	}
	n, err := c.txn.Update(ctx, spanner.Statement{SQL: sql, Params: params})
	return driver.RowsAffected(n), err
}

func (c *conn) Commit() error   { _, err := c.txn.Commit(context.Background()); return err }
func (c *conn) Rollback() error { c.txn.Rollback(context.Background()); return nil }

// In both dialects, a transaction that uses only SQL commits while its token is valid, and fails once the token is
// superseded.
func TestATransactionOfSQLIsFenced(t *testing.T) {
	needEmulator(t)
	for dialect, opts := range map[databasepb.DatabaseDialect][]spindletest.Option{
		databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL: {spindletest.WithDDL("CREATE TABLE orders (id INT64, state STRING(MAX)) PRIMARY KEY (id)")},
		databasepb.DatabaseDialect_POSTGRESQL:          {spindletest.PostgreSQL(), spindletest.WithDDL("CREATE TABLE orders (id bigint PRIMARY KEY, state varchar)")},
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			db := spindletest.New(t, opts...)
			driven := sql.OpenDB(&conn{db: connect(t, db)})
			t.Cleanup(func() { _ = driven.Close() })
			set := func(lock *spindle.Lock, token spindle.Token, state string) error {
				for {
					err := InSQL(t.Context(), driven, dialect, lock, token, func(tx *sql.Tx) error {
						_, err := tx.ExecContext(t.Context(), "UPDATE orders SET state = '"+state+"' WHERE id = 1")
						return err
					})
					if spanner.ErrCode(err) != codes.Aborted { // a heartbeat can abort it, because the emulator runs one transaction at a time
						return err
					}
				}
			}
			state := func() (s string) {
				row, err := db.Client.Single().ReadRow(t.Context(), "orders", spanner.Key{1}, []string{"state"})
				require.NoError(t, err)
				require.NoError(t, row.Columns(&s))
				return s
			}
			_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Insert("orders", []string{"id", "state"}, []any{1, "new"})})
			require.NoError(t, err)

			first, stop := compete(t, db)
			old := elected(t, first)
			require.NoError(t, set(first, old, "paid"))
			assert.Equal(t, "paid", state())
			stop()
			second, _ := compete(t, db)
			token := elected(t, second)
			assert.ErrorIs(t, set(first, old, "late"), spindle.ErrFenced)
			assert.Equal(t, "paid", state())
			require.NoError(t, set(second, token, "sent"))
			assert.Equal(t, "sent", state())
		})
	}
}
