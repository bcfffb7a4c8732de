package spindletest_test

import (
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/spindletest"
)

func needEmulator(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an emulator")
	}
}

func TestADatabaseHasTheLockTableAndTheUsersOwn(t *testing.T) {
	needEmulator(t)
	for name, opts := range map[string][]spindletest.Option{
		"GoogleSQL": {
			spindletest.WithDDL("CREATE TABLE a (id INT64) PRIMARY KEY (id)"),
			spindletest.WithDDL("CREATE TABLE b (id INT64) PRIMARY KEY (id)", "CREATE INDEX young ON locktable (token)"),
		},
		"PostgreSQL": {
			spindletest.PostgreSQL(),
			spindletest.WithDDL("CREATE TABLE a (id bigint PRIMARY KEY)", "CREATE TABLE b (id bigint PRIMARY KEY)", "CREATE INDEX young ON locktable (token)"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := spindletest.New(t, opts...)
			_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{
				spanner.Insert("a", []string{"id"}, []any{1}),
				spanner.Insert("b", []string{"id"}, []any{1}),
			})
			require.NoError(t, err)
			require.NoError(t, ddl.Verify(t.Context(), db.Client, db.Table))
		})
	}
}

func TestDatabasesAreIndependentOnOneEmulator(t *testing.T) {
	needEmulator(t)
	a, b := spindletest.New(t), spindletest.New(t)
	require.Equal(t, a.Host, b.Host)
	require.NotEqual(t, a.Path, b.Path)
	_, err := a.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Insert(a.Table, []string{"name"}, []any{"x"})})
	require.NoError(t, err)
	_, err = b.Client.Single().ReadRow(t.Context(), b.Table, spanner.Key{"x"}, []string{"name"})
	require.ErrorIs(t, err, spanner.ErrRowNotFound)
}

func TestTheDatabaseIsDroppedAfterTheTest(t *testing.T) {
	needEmulator(t)
	outer := spindletest.New(t)
	var path string
	t.Run("inner", func(t *testing.T) { path = spindletest.New(t).Path })
	err := ddl.Create(t.Context(), path, "locktable", outer.ClientOptions()...)
	require.ErrorContains(t, err, "not found")
}

func TestAPrivateEmulatorTakesFlagsAndCanBeStopped(t *testing.T) {
	needEmulator(t)
	others := spindletest.New(t)
	db := spindletest.New(t, spindletest.Private("--enable_fault_injection"))
	require.NotEqual(t, others.Host, db.Host)
	db.StopEmulator(t)
	said := spindletest.Failure(t, func(tb testing.TB) { others.StopEmulator(tb) })
	require.Contains(t, said, "other tests may use it")

	require.NoError(t, ddl.Verify(t.Context(), others.Client, others.Table))
	again := spindletest.New(t, spindletest.Private())
	require.NoError(t, ddl.Verify(t.Context(), again.Client, again.Table))
}
