package lock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

var quiet = spindle.WithLogger(slog.New(slog.DiscardHandler))

// patient is for locks on the emulator, where other tests can delay heartbeats for longer than the default lease.
var patient = spindle.Options(quiet, spindle.WithLease(time.Minute))

func inBothDialects(t *testing.T, f func(t *testing.T, db *spindletest.Database), opts ...spindletest.Option) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
	t.Run("GoogleSQL", func(t *testing.T) {
		t.Parallel()
		f(t, spindletest.New(t, append(opts, spindletest.WithDDL(`CREATE TABLE counter (id INT64 NOT NULL, n INT64) PRIMARY KEY (id)`))...))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		f(t, spindletest.New(t, append(opts, spindletest.PostgreSQL(), spindletest.WithDDL(`CREATE TABLE counter (id bigint NOT NULL PRIMARY KEY, n bigint)`))...))
	})
}

// counted returns a separate client for db, and the number of its RPCs.
func counted(t testing.TB, db *spindletest.Database) (*spanner.Client, *atomic.Int64) {
	var n atomic.Int64
	client, err := spanner.NewClientWithConfig(context.Background(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true},
		append(db.ClientOptions(),
			option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				n.Add(1)
				return invoke(ctx, method, req, reply, cc, opts...)
			})),
			option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				n.Add(1)
				return stream(ctx, desc, cc, method, opts...)
			})))...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client, &n
}

// lose takes a lock away from its holder, as an operator would.
func lose(t testing.TB, db *spindletest.Database, name string, token spindle.Token) {
	_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete(db.Table, spanner.Key{fmt.Sprintf("%s_%016d", name, token)})})
	require.NoError(t, err)
}

func TestLockAndUnlockTakeThreeRPCsAndNoSleep(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		client, rpcs := counted(t, db)
		warm := lock.New(client, db.Table, "warm", patient)
		require.NoError(t, warm.Lock(t.Context()))
		require.NoError(t, warm.Unlock(t.Context()))
		m := lock.New(client, db.Table, "m", patient)
		fastest := time.Hour // a sleep would be in each of them
		for i := range 4 {
			before, start := rpcs.Load(), time.Now()
			require.NoError(t, m.Lock(t.Context()))
			require.NoError(t, m.Unlock(t.Context()))
			want := int64(3)
			if i == 0 { // nobody has released it yet
				want = 6
			}
			assert.Equal(t, want, rpcs.Load()-before)
			fastest = min(fastest, time.Since(start))
		}
		assert.Less(t, fastest, time.Second)
	})
}

func TestAMutexExcludesOthersAndAnElector(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		ctx := t.Context()
		a, b := lock.New(db.Client, db.Table, "m", patient), lock.New(db.Client, db.Table, "m", patient, spindle.WithID("b"))
		require.NoError(t, a.Lock(ctx))
		require.NotZero(t, a.Token())
		ok, err := b.TryLock(ctx)
		require.NoError(t, err)
		require.False(t, ok)
		elector := spindle.New(db.Client, db.Table, "m", patient)
		leader, err := elector.Leader(ctx)
		require.NoError(t, err)
		require.Equal(t, a.Token(), leader.Token)

		first := a.Token()
		require.NoError(t, a.Unlock(ctx))
		assert.Zero(t, a.Token())
		ok, err = b.TryLock(ctx)
		require.NoError(t, err)
		require.True(t, ok)
		assert.Greater(t, b.Token(), first)
		require.NoError(t, b.Unlock(ctx))
	})
}

// A write under a mutex, a set or a permit fails with ErrFenced exactly if it is no longer held.
func TestAFencedWriteSaysWhetherItWasFenced(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		m, s := lock.New(db.Client, db.Table, "m", patient), lock.All(db.Client, db.Table, []string{"a", "b"}, patient)
		sem := lock.NewSemaphore(db.Client, db.Table, "s", 1, patient)
		type fenced interface {
			Token() spindle.Token
			Apply(context.Context, []*spanner.Mutation, ...spanner.ApplyOption) (time.Time, error)
			ReadWriteTransaction(context.Context, func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error)
		}
		dialect := databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL
		if strings.HasSuffix(t.Name(), "PostgreSQL") {
			dialect = databasepb.DatabaseDialect_POSTGRESQL
		}
		requireUpdates := func(rows int64, f fenced) { // by the fence in SQL
			sql, ok := f.(interface {
				FenceStatement(databasepb.DatabaseDialect) spanner.Statement
			})
			if !ok {
				return // a Set has none
			}
			var n int64
			_, err := db.Client.ReadWriteTransaction(t.Context(), func(ctx context.Context, txn *spanner.ReadWriteTransaction) (err error) {
				n, err = txn.Update(ctx, sql.FenceStatement(dialect))
				return err
			})
			require.NoError(t, err)
			require.Equal(t, rows, n)
		}
		for _, c := range []struct {
			lock.Locker
			held func(context.Context) fenced
			name string
			own  []*spanner.Mutation
		}{
			{m, func(context.Context) fenced { return m }, "m", []*spanner.Mutation{m.Fence()}},
			{s, func(context.Context) fenced { return s }, "b", s.Fence()},
			{sem, func(ctx context.Context) fenced { return sem.Permit(ctx) }, "s/slot/0000", []*spanner.Mutation{sem.Permit(t.Context()).Fence()}},
		} {
			var held fenced
			write := []*spanner.Mutation{spanner.InsertOrUpdate("counter", []string{"id", "n"}, []any{1, 1})}
			missing := []*spanner.Mutation{spanner.Update("counter", []string{"id", "n"}, []any{99, 1})}
			outcomes := func(ctx context.Context, ms []*spanner.Mutation) []error {
				_, applied := held.Apply(ctx, ms)
				_, transacted := held.ReadWriteTransaction(ctx, func(_ context.Context, txn *spanner.ReadWriteTransaction) error { return txn.BufferWrite(ms) })
				return []error{applied, transacted}
			}
			err := lock.Do(t.Context(), c, func(ctx context.Context) error {
				held = c.held(ctx)
				requireUpdates(1, held)
				for _, err := range outcomes(ctx, write) {
					assert.NoError(t, err)
				}
				for _, err := range outcomes(ctx, missing) {
					assert.Equal(t, codes.NotFound, spanner.ErrCode(err))
					assert.NotErrorIs(t, err, spindle.ErrFenced, "a row of the caller's own")
				}
				lose(t, db, c.name, held.Token())
				ctx = context.WithoutCancel(ctx) // a heartbeat may notice the loss first
				for _, ms := range [][]*spanner.Mutation{write, missing} {
					for _, err := range outcomes(ctx, ms) {
						assert.ErrorIs(t, err, spindle.ErrFenced)
						assert.True(t, spindle.IsFenced(err, db.Table))
					}
				}
				return nil
			})
			assert.ErrorIs(t, err, lock.ErrNotHeld)
			requireUpdates(0, held)
			for _, err := range outcomes(t.Context(), write) {
				assert.ErrorIs(t, err, spindle.ErrFenced, "not held at all")
			}
			_, err = db.Client.Apply(t.Context(), append(c.own, write...))
			assert.True(t, spindle.IsFenced(err, db.Table), "%v", err)
		}
	})
}

type largest struct {
	character string
	names     int
}

func TestTheLargestCommitOfASetIsTaken(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		names := make([]string, 500)
		for i := range names {
			names[i] = fmt.Sprint("thing-", i)
		}
		for _, c := range fleet.Some(largest{"<", 235}, largest{"x", 500}) { // JSON writes < with six characters
			value := spindle.WithValue(strings.Repeat(c.character, 64<<10))
			s := lock.All(db.Client, db.Table, names[:c.names], quiet, value, spindle.WithLease(10*time.Minute))
			require.NoError(t, s.Lock(t.Context()))
			require.NoError(t, s.Unlock(t.Context()))
		}
	})
}

func TestLockWithTheCtxOfATransactionSaysSoAtOnce(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := db.Client.ReadWriteTransaction(ctx, func(ctx context.Context, _ *spanner.ReadWriteTransaction) error {
			return lock.New(db.Client, db.Table, "m", quiet).Lock(ctx)
		})
		require.ErrorContains(t, err, "use a context from outside the transaction")
		assert.NoError(t, ctx.Err())
	})
}

func TestATableWithoutCommitTimestampsIsToldAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	db := spindletest.New(t, spindletest.WithDDL(`CREATE TABLE wrong (name STRING(MAX) NOT NULL, heartbeat TIMESTAMP, token TIMESTAMP, writer STRING(MAX)) PRIMARY KEY (name)`))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err := lock.New(db.Client, "wrong", "m", quiet).Lock(ctx)
	require.Error(t, err)
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
	t.Log(err)
}

// The emulator forgets concurrent transactions of one client, where Spanner aborts them.
func TestManyWhoAskAtOnceForFreeSlotsGetOneEach(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		s := lock.NewSemaphore(db.Client, db.Table, "s", 100, quiet, spindle.WithLease(time.Minute)) // a request has a part of it
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				p, ok, err := s.TryAcquire(t.Context())
				if assert.NoError(t, err) && assert.True(t, ok) {
					assert.NotZero(t, p.Token())
				}
			})
		}
		all.Wait()
	})
}

func TestFencedWritesOfManyGoroutinesAllLandOnce(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		const writers, each = 10, 5
		m := lock.New(db.Client, db.Table, "m", quiet, spindle.WithLease(time.Minute)) // they also abort its heartbeats
		require.NoError(t, m.Lock(t.Context()))
		_, err := m.Apply(t.Context(), []*spanner.Mutation{spanner.Insert("counter", []string{"id", "n"}, []any{0, 0})})
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				for k := range each {
					_, err := m.Apply(t.Context(), []*spanner.Mutation{spanner.Insert("counter", []string{"id", "n"}, []any{1 + i*each + k, 1})})
					assert.NoError(t, err)
					_, err = m.ReadWriteTransaction(t.Context(), func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
						row, err := txn.ReadRow(ctx, "counter", spanner.Key{0}, []string{"n"})
						if err != nil {
							return err
						}
						var n int64
						if err := row.Columns(&n); err != nil {
							return err
						}
						return txn.BufferWrite([]*spanner.Mutation{spanner.Update("counter", []string{"id", "n"}, []any{0, n + 1})})
					})
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		row, err := db.Client.Single().ReadRow(t.Context(), "counter", spanner.Key{0}, []string{"n"})
		require.NoError(t, err)
		var n int64
		require.NoError(t, row.Columns(&n))
		assert.EqualValues(t, writers*each, n)
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	before := goleak.IgnoreCurrent()
	t.Run("run", func(t *testing.T) {
		db := spindletest.New(t)
		m := lock.New(db.Client, db.Table, "m", patient)
		require.NoError(t, m.Lock(t.Context()))
		other := lock.New(db.Client, db.Table, "m", patient, spindle.WithValue("x"))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.Error(t, other.Lock(ctx), "a waiter that gives up")
		require.NoError(t, m.Unlock(t.Context()))
		var rows int
		require.NoError(t, db.Client.Single().Read(t.Context(), db.Table, spanner.AllKeys(), []string{"name"}).Do(func(*spanner.Row) error { rows++; return nil }))
		assert.Equal(t, 2, rows, "the lock row, and its free row")
	})
	testcheck.NoLeak(t, before)
}

func TestBadArgumentsAreRefusedAndSayWhy(t *testing.T) {
	db := &spanner.Client{}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		err  error
		says string
	}{
		{lock.New(nil, "locktable", "m").Lock(t.Context()), "client is nil"},
		{lock.New(db, "locktable", "").Lock(t.Context()), "name is empty"},
		{lock.New(db, "locktable", "m_1700000000000000").Lock(t.Context()), "lease row"},
		{lock.New(db, "lock table", "m").Lock(t.Context()), "identifier"},
		{lock.New(db, "locktable", "m", spindle.WithLease(5000)).Lock(t.Context()), "nanoseconds"},
		{lock.New(db, "locktable", "m", nil).Lock(t.Context()), "option 1 is nil"},
		{lock.All(db, "locktable", nil).Lock(t.Context()), "set is empty"},
		{lock.All(db, "locktable", []string{"a", "b", "a"}).Lock(t.Context()), `"a" twice`},
		{lock.All(db, "locktable", []string{"a", ""}).Lock(t.Context()), "name is empty"},
		{lock.All(db, "locktable", strings.Split(strings.Repeat("x,", 600), ",")).Lock(t.Context()), "601 names"},
		{acquire(lock.NewSemaphore(db, "locktable", "s", 0)), "the number of slots is 0"},
		{acquire(lock.NewSemaphore(db, "locktable", "s", -1)), "the number of slots is -1"},
		{acquire(lock.NewSemaphore(db, "locktable", "s", 1001)), "the number of slots is 1001"},
		{acquire(lock.NewSemaphore(db, "locktable", "", 1)), "name is empty"},
		{lock.NewSemaphore(db, "locktable", strings.Repeat("s", 4087), 1).Err(), "at most 4086"},
		{lock.New(db, "locktable", "m").Lock(ended), "ctx had already ended"},
		{lock.New(db, "locktable", "m").Unlock(t.Context()), "not held"},
	} {
		t.Log(c.err)
		assert.ErrorContains(t, c.err, c.says)
	}
	assert.NoError(t, lock.NewSemaphore(db, "locktable", strings.Repeat("s", 4086), 1).Err())
	_, err := lock.New(db, "locktable", "m").TryLock(ended)
	assert.ErrorIs(t, err, context.Canceled)
	_, _, err = lock.NewSemaphore(db, "locktable", "s", 1).TryAcquire(ended)
	assert.ErrorIs(t, err, context.Canceled)
	select {
	case <-lock.New(db, "locktable", "m").Lost():
	default:
		t.Error("what is not held is lost")
	}
}

func acquire(s *lock.Semaphore) error {
	_, err := s.Acquire(context.Background())
	return err
}

func TestNamesOfPartsNeverCollide(t *testing.T) {
	parts := []string{"", "a", "b", "a/b", "/", "a%2Fb", "%", "a/", "/b", "ä"}
	seen := map[string][]string{}
	for _, x := range parts {
		for _, name := range [][]string{{x}, {x, "a"}, {x, "b"}, {x, "a/b"}, {x, ""}, {x, "/b"}} {
			key := lock.Name(name...)
			other, taken := seen[key]
			assert.False(t, taken, "%q and %q are both %q", name, other, key)
			seen[key] = name
		}
	}
	assert.Equal(t, "router-7/snmp-query", lock.Name("router-7", "snmp-query"))
}
