package recipes

import (
	"context"
	"database/sql"
	"errors"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle"
)

// InSQL runs fn in a transaction that uses only SQL. The transaction commits only if token is still valid.
func InSQL(ctx context.Context, db *sql.DB, dialect databasepb.DatabaseDialect, lock *spindle.Lock, token spindle.Token, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	if err := fn(tx); err != nil {
		return err
	}
	fence := lock.FenceStatement(dialect, token) // last, because claims of the lock wait from here until the commit
	result, err := tx.ExecContext(ctx, fence.SQL, fence.Params["p1"])
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); rows != 1 || err != nil {
		return errors.Join(err, spindle.ErrFenced)
	}
	return tx.Commit()
}
