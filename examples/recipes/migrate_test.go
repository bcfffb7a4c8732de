package recipes

import (
	"context"
	"errors"
	"sync"
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// When several pods start together, only one of them runs each migration. The migrations run in order, and every pod
// waits until all of them are done.
func TestMigrationsRunOnceAndEverybodyWaitsForThem(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t, spindletest.WithDDL("CREATE TABLE log (n INT64, version STRING(MAX)) PRIMARY KEY (n, version)"))
	versions := func() (all []string) {
		rows := db.Client.Single().Read(t.Context(), "log", spanner.AllKeys(), []string{"version"})
		require.NoError(t, spanner.SelectAll(rows, &all))
		return all
	}
	var pods sync.WaitGroup
	for range 4 {
		client := connect(t, db)
		migration := func(version string) Migration {
			return Migration{version, func(ctx context.Context, _ lock.Run) error {
				_, err := client.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
					n := int64(0)
					if err := txn.Read(ctx, "log", spanner.AllKeys(), []string{"n"}).Do(func(*spanner.Row) error { n++; return nil }); err != nil {
						return err
					}
					return txn.BufferWrite([]*spanner.Mutation{spanner.Insert("log", []string{"n", "version"}, []any{n, version})})
				})
				return err
			}}
		}
		pods.Go(func() {
			if assert.NoError(t, Migrate(t.Context(), client, []Migration{migration("0001"), migration("0002"), migration("0003")})) {
				assert.Equal(t, []string{"0001", "0002", "0003"}, versions())
			}
		})
	}
	pods.Wait()
}

// If a migration fails, the pod does not start, and later migrations do not run. The next pod tries the migration
// again.
func TestAMigrationThatFailsIsTriedAgain(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	var ran []string
	fails := errors.New("no space")
	migration := func(version string, err error) Migration {
		return Migration{version, func(context.Context, lock.Run) error { ran = append(ran, version); return err }}
	}
	err := Migrate(t.Context(), db.Client, []Migration{migration("0001", nil), migration("0002", fails), migration("0003", nil)})
	require.ErrorIs(t, err, fails)
	require.NoError(t, Migrate(t.Context(), db.Client, []Migration{migration("0001", nil), migration("0002", nil), migration("0003", nil)}))
	assert.Equal(t, []string{"0001", "0002", "0002", "0003"}, ran)
}

// A pod of an earlier version can start after an update, because its migrations ran before the update's migrations.
func TestAnEarlierVersionFindsItsMigrationsPassed(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	var ran []string
	migration := func(version string) Migration {
		return Migration{version, func(context.Context, lock.Run) error { ran = append(ran, version); return nil }}
	}
	require.NoError(t, Migrate(t.Context(), db.Client, []Migration{migration("0001"), migration("0002"), migration("0003")}))
	require.NoError(t, Migrate(t.Context(), db.Client, []Migration{migration("0001"), migration("0002")}))
	assert.Equal(t, []string{"0001", "0002", "0003"}, ran)
}
