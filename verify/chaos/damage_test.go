//go:build chaos && unix

package chaos

import (
	"context"
	"errors"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// The content of unreadable rows: garbled, or written by a newer version.
const (
	garbage = `{"lease":`
	newer   = `{"v":99,"lease":["10s"]}`
)

// damage prevents a partition from being claimed after its member has died, and returns a function that repairs it. It
// returns nil if no member had the partition.
type damage func(t *team, lock string) (mend func())

// A row of this table refers to a row of the lock table, which can't be deleted while the reference exists.
const (
	referenceGoogleSQL  = `CREATE TABLE reference (name STRING(MAX) NOT NULL, FOREIGN KEY (name) REFERENCES locktable (name)) PRIMARY KEY (name)`
	referencePostgreSQL = `CREATE TABLE reference (name varchar NOT NULL PRIMARY KEY, FOREIGN KEY (name) REFERENCES locktable (name))`
)

// refer inserts a row that refers to the partition's lease row, so that claims and releases of the partition fail in
// Spanner.
func refer(t *team, lock string) (mend func()) {
	var lease string
	if !t.change(func(ctx context.Context, txn *spanner.ReadWriteTransaction) (err error) {
		if lease, err = t.leaseRow(ctx, txn, lock); err != nil {
			return err
		}
		return txn.BufferWrite([]*spanner.Mutation{spanner.Insert("reference", []string{"name"}, []any{lease})})
	}) {
		return nil
	}
	return func() {
		t.change(func(_ context.Context, txn *spanner.ReadWriteTransaction) error {
			return txn.BufferWrite([]*spanner.Mutation{spanner.Delete("reference", spanner.Key{lease})})
		})
	}
}

// garble overwrites the member in both of the partition's rows. Members that can't read the rows do not claim the
// partition.
func garble(with string) damage {
	return func(t *team, lock string) (mend func()) {
		said := map[string]string{} // by key
		if !t.change(func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
			lease, err := t.leaseRow(ctx, txn, lock)
			if err != nil {
				return err
			}
			for _, key := range []string{t.row(lock), lease} {
				if said[key], err = t.writer(ctx, txn, key); err != nil {
					return err
				}
				if err := txn.BufferWrite(t.says(key, with)); err != nil {
					return err
				}
			}
			return nil
		}) {
			return nil
		}
		return func() {
			t.change(func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
				for key, said := range said {
					if now, err := t.writer(ctx, txn, key); err != nil || now != with {
						continue // its member has released it, and others have claimed it since
					}
					if err := txn.BufferWrite(t.says(key, said)); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

// change changes rows by hand. It reports false if the partition had no lease row.
func (t *team) change(fn func(context.Context, *spanner.ReadWriteTransaction) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	for {
		_, err := t.db.ReadWriteTransaction(ctx, fn)
		switch {
		case err == nil:
			return true
		case errors.Is(err, spanner.ErrRowNotFound):
			return false
		case ctx.Err() != nil:
			t.tb.Errorf("rows could not be changed by hand: %v", err)
			return false
		}
		time.Sleep(t.base.Lease / 20) // the emulator forgets transactions
	}
}

// leaseRow returns the key of the lease row of the member that has the partition.
func (t *team) leaseRow(ctx context.Context, txn *spanner.ReadWriteTransaction, lock string) (string, error) {
	row, err := txn.ReadRow(ctx, t.base.Table, spanner.Key{t.row(lock)}, []string{"token"})
	if err != nil {
		return "", err
	}
	var token spanner.NullTime
	if err := row.Columns(&token); err != nil {
		return "", err
	}
	key := table.LeaseKey(t.row(lock), table.TokenAt(token.Time))
	_, err = t.writer(ctx, txn, key)
	return key, err
}

func (t *team) writer(ctx context.Context, txn *spanner.ReadWriteTransaction, key string) (string, error) {
	row, err := txn.ReadRow(ctx, t.base.Table, spanner.Key{key}, []string{"writer"})
	if err != nil {
		return "", err
	}
	var writer spanner.NullString
	err = row.Columns(&writer)
	return writer.StringVal, err
}

func (t *team) says(key, writer string) []*spanner.Mutation {
	return []*spanner.Mutation{spanner.Update(t.base.Table, []string{"name", "writer"}, []any{key, writer})}
}

// row returns the name of a partition's lock row.
func (t *team) row(lock string) string {
	return table.PartitionName(t.base.Lock, strings.TrimPrefix(lock, t.base.Lock+"/"))
}
