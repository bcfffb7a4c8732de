package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const (
	token  = table.Token(1795294355747585)
	leaseA = "a_1795294355747585"
	leaseB = "b_1795294355747585"
	own    = "a row of the caller"
)

// behind returns a fence of these locks.
func behind(db *spanner.Client, names ...string) fence.Fence {
	return fence.Fence{Table: table.Spanner{DB: db, Table: "locktable"}, Names: names, Token: token,
		About: telemetry.Scope{Table: "locktable", Locks: names}, Wrap: func(err error) error { return fmt.Errorf("wrapped: %w", err) }}
}

// write is the write that the caller wants to commit. It is refused if its row is missing.
func write() []*spanner.Mutation {
	return []*spanner.Mutation{spanner.Update("register", []string{"id", "value"}, []any{own, "1"})}
}

// within returns a transaction function that first reads and then writes.
func within(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
	if _, err := txn.ReadRow(ctx, "register", spanner.Key{own}, []string{"id", "value"}); err != nil && spanner.ErrCode(err) != codes.NotFound {
		return err
	}
	return txn.BufferWrite(write())
}

// ways are the ways to commit a write under a fence.
var ways = map[string]func(context.Context, fence.Fence) (time.Time, error){
	"Apply": func(ctx context.Context, f fence.Fence) (time.Time, error) { return f.Apply(ctx, write()) },
	"Apply at least once": func(ctx context.Context, f fence.Fence) (time.Time, error) {
		return f.Apply(ctx, write(), spanner.ApplyAtLeastOnce())
	},
	"a transaction": func(ctx context.Context, f fence.Fence) (time.Time, error) {
		return f.ReadWriteTransaction(ctx, func(_ context.Context, txn *spanner.ReadWriteTransaction) error { return txn.BufferWrite(write()) })
	},
	"a transaction that reads": func(ctx context.Context, f fence.Fence) (time.Time, error) {
		return f.ReadWriteTransaction(ctx, within)
	},
}

func inEachWay(t *testing.T, f func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error))) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) { f(t, way) })
	}
}

func TestAWriteLandsWhileEveryLockIsHeld(t *testing.T) {
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		s, db := serve(t, leaseA, leaseB, own)
		for _, names := range [][]string{{"a"}, {"a", "b"}} {
			s.commits = nil
			at, err := try(t.Context(), behind(db, names...))
			require.NoError(t, err)
			assert.WithinDuration(t, time.Now(), at, time.Minute)
			require.Len(t, s.commits, 1)
			sent := s.commits[0].GetMutations()
			require.Len(t, sent, len(names)+1)
			for i, name := range names { // before the caller's own writes, which must not be blamed for a fenced commit
				assert.Equal(t, "locktable", sent[i].GetUpdate().GetTable())
				assert.Equal(t, []string{"name"}, sent[i].GetUpdate().GetColumns(), "nothing but the key")
				assert.Equal(t, name+"_1795294355747585", sent[i].GetUpdate().GetValues()[0].GetValues()[0].GetStringValue())
			}
			assert.Equal(t, "register", sent[len(names)].GetUpdate().GetTable())
		}
		for _, r := range s.reads {
			assert.NotEqual(t, "locktable", r.GetTable(), "a write that lands costs no read")
		}
	})
}

// Locks of several owners can be in one commit, each under its own token.
func TestACommitUnderSeveralLocksLandsWhileAllAreHeld(t *testing.T) {
	s, db := serve(t, leaseA, leaseB, own)
	under := fence.Fences{behind(db, "a"), behind(db, "b")}
	_, err := under.Apply(t.Context(), write())
	require.NoError(t, err)
	require.Len(t, s.commits, 1)
	require.Len(t, s.commits[0].GetMutations(), 3)

	under = fence.Fences{behind(db, "a"), behind(s.client(t, spanner.ClientConfig{}), "b")}
	_, err = under.Apply(t.Context(), write())
	require.NoError(t, err, "two clients of one database")
	require.Len(t, s.commits, 2)

	for lost, name := range map[string]string{leaseA: "a", leaseB: "b"} {
		s, db := serve(t, leaseA, leaseB, own)
		s.remove(lost)
		under := fence.Fences{behind(db, "a"), behind(db, "b")}
		for i, of := range []string{"a", "b"} {
			under[i].Wrap = func(err error) error { return fmt.Errorf("lock %q: %w", of, err) }
		}
		_, err := under.Apply(t.Context(), write())
		require.ErrorIs(t, err, fence.ErrFenced)
		assert.ErrorContains(t, err, fmt.Sprintf("lock %q: token", name))
	}
}

func TestACommitUnderNoLockOrInTwoDatabasesIsRefused(t *testing.T) {
	s, db := serve(t, leaseA, leaseB, own)
	_, err := fence.Fences{}.Apply(t.Context(), write())
	assert.ErrorContains(t, err, "pass at least one lock")

	none := behind(db, "b")
	none.Token = 0
	_, err = fence.Fences{behind(db, "a"), none}.Apply(t.Context(), write())
	assert.ErrorIs(t, err, fence.ErrFenced)

	other, err := spanner.NewClient(t.Context(), "projects/p/instances/i/databases/other", option.WithoutAuthentication(), option.WithEndpoint("127.0.0.1:1"),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	require.NoError(t, err)
	defer other.Close()
	_, err = fence.Fences{behind(db, "a"), behind(other, "b")}.Apply(t.Context(), write())
	assert.ErrorContains(t, err, "a commit can write to only one database")
	assert.Empty(t, s.commits)
}

// The reason that Spanner gives for refusing a commit may be one of several. The lease rows show whether the fence is
// also one.
func TestARefusedWriteIsFencedExactlyIfALockIsLost(t *testing.T) {
	refused := map[string]error{
		"the row that is missing": nil,
		"a missing row":           status.Error(codes.NotFound, "Row [x] in table register is missing. Row cannot be updated."),
		"a row that exists":       status.Error(codes.AlreadyExists, "Row [x] in table register already exists"),
		"a failed precondition":   status.Error(codes.FailedPrecondition, "a foreign key"),
		"a value out of range":    status.Error(codes.OutOfRange, "a check"),
		"an invalid argument":     status.Error(codes.InvalidArgument, "a value"),
	}
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		for what, err := range refused {
			s, db := serve(t, leaseA, leaseB)
			s.commit = func(int) error { return err }
			code := codes.NotFound
			if err != nil {
				code = status.Code(err)
			}
			at, err := try(t.Context(), behind(db, "a", "b"))
			assert.Zero(t, at, what)
			assert.NotErrorIs(t, err, fence.ErrFenced, "%s: both locks are held", what)
			assert.Equal(t, code, spanner.ErrCode(err), what)
			assert.NotContains(t, err.Error(), "wrapped", what)

			s.remove(leaseB)
			at, err = try(t.Context(), behind(db, "a", "b"))
			assert.Zero(t, at, what)
			require.ErrorIs(t, err, fence.ErrFenced, "%s: one lock is lost", what)
			assert.ErrorContains(t, err, "wrapped: token 1795294355747585: fenced", what)
			assert.Equal(t, code, spanner.ErrCode(err), "%s: it says too what Spanner said", what)

			last := s.reads[len(s.reads)-1]
			assert.True(t, last.GetTransaction().GetSingleUse().GetReadOnly().GetStrong(), "an older snapshot may show the lease row still")
			assert.Len(t, last.GetKeySet().GetKeys(), 2)
		}
	})
}

// A transaction that Spanner aborts runs again. Whatever the outcome of the earlier attempts, the last one determines
// the result.
func TestOnlyTheLastAttemptOfATransactionCounts(t *testing.T) {
	theirs := status.Error(codes.NotFound, "of the caller")
	for first, abort := range map[string]func(s *server) (fn func() error){
		"at its commit": func(s *server) func() error {
			s.commit = func(attempt int) error {
				if attempt == 1 {
					s.rows = map[string]bool{}
					return aborted()
				}
				return nil
			}
			return func() error { return nil }
		},
		"at a read": func(s *server) func() error {
			reads := 0
			s.read = func(read string) error {
				if reads++; reads == 1 {
					s.rows = map[string]bool{}
					return aborted()
				}
				return nil
			}
			return func() error { return nil }
		},
		"by the caller": func(s *server) func() error {
			runs := 0
			return func() error {
				if runs++; runs == 1 {
					s.remove(leaseA)
					return aborted()
				}
				return nil
			}
		},
	} {
		for _, last := range []error{nil, theirs} {
			s, db := serve(t, leaseA, own)
			more, runs := abort(s), 0
			at, err := behind(db, "a").ReadWriteTransaction(t.Context(), func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
				runs++
				if runs > 1 && last != nil {
					return last
				}
				if err := more(); err != nil {
					return err
				}
				return within(ctx, txn)
			})
			assert.Zero(t, at, first)
			assert.Equal(t, 2, runs, "aborted %s", first)
			if last == nil {
				assert.ErrorIs(t, err, fence.ErrFenced, "aborted %s, and then refused", first)
				assert.Equal(t, 1, fences(s), "aborted %s: each attempt has the fence", first)
				continue
			}
			assert.ErrorIs(t, err, theirs, "aborted %s, and then of the caller", first)
			assert.NotErrorIs(t, err, fence.ErrFenced, "aborted %s, and then of the caller", first)
		}
	}
}

// fences returns the number of fences in the last commit.
func fences(s *server) (n int) {
	for _, m := range s.commits[len(s.commits)-1].GetMutations() {
		if m.GetUpdate().GetTable() == "locktable" {
			n++
		}
	}
	return n
}

// A commit that is refused just before its deadline is classified like any other, because reading the lease rows has
// its own timeout.
func TestAWriteThatIsRefusedAsItsCtxEndsIsFenced(t *testing.T) {
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		s, _ := serve(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		late := option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoke(ctx, method, req, reply, cc, opts...)
				if _, is := req.(*sppb.CommitRequest); is {
					cancel() // the reply has come
				}
				return err
			}))
		_, err := try(ctx, behind(s.client(t, spanner.ClientConfig{}, late), "a"))
		require.Error(t, ctx.Err())
		assert.ErrorIs(t, err, fence.ErrFenced)
	})
}

// If it is not known whether a lock is lost, the error says so and includes the error of the write.
func TestARefusalThatIsNotUnderstoodIsNotCalledFenced(t *testing.T) {
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		s, db := serve(t)
		s.read = func(table string) error {
			if table == "locktable" {
				return status.Error(codes.PermissionDenied, "not for you")
			}
			return nil
		}
		f, gone := behind(db, "a"), false
		f.Gone = func() { gone = true }
		_, err := try(t.Context(), f)
		assert.NotErrorIs(t, err, fence.ErrFenced)
		assert.False(t, gone, "the term ends only if its lock is known to be lost")
		assert.Equal(t, codes.NotFound, spanner.ErrCode(err))
		assert.ErrorContains(t, err, "it is not known whether the fence refused the commit: wrapped: ")
		assert.ErrorContains(t, err, "not for you")
	})
}

// An error that does not depend on the contents of the database does not cause a read of the lease rows.
func TestAWriteThatWasNotRefusedIsNotCalledFenced(t *testing.T) {
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		for _, code := range []codes.Code{codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.DeadlineExceeded} {
			s, db := serve(t)
			s.commit = func(int) error { return status.Error(code, "no") }
			_, err := try(t.Context(), behind(db, "a"))
			assert.Equal(t, code, spanner.ErrCode(err))
			assert.NotErrorIs(t, err, fence.ErrFenced, "%v", code)
			for _, r := range s.reads {
				assert.NotEqual(t, "locktable", r.GetTable(), "%v", code)
			}
		}
	})
}

// A leader that was paused writes with a ctx that has ended. It learns that nothing was written, which a request could leave open.
func TestAWriteWhoseCtxHasEndedIsNotSent(t *testing.T) {
	lost := errors.New("the lock was lost")
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		s, db := serve(t, leaseA, own)
		ctx, end := context.WithCancelCause(t.Context())
		end(lost)
		_, err := try(ctx, behind(db, "a"))
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, lost)
		assert.ErrorContains(t, err, "wrapped: nothing was written")
		assert.Empty(t, s.commits)
		assert.Empty(t, s.begins)
		assert.Empty(t, s.reads)
	})
}

func TestAWriteThatIsAnsweredWithoutATimestampHasNotLanded(t *testing.T) {
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		s, db := serve(t, leaseA, own)
		s.silent = true
		at, err := try(t.Context(), behind(db, "a"))
		assert.Zero(t, at)
		assert.ErrorIs(t, err, table.ErrNoTimestamp)
		assert.NotErrorIs(t, err, fence.ErrFenced)
	})
}

// Results that need no request to Spanner are returned without one, and are the same for a caller that has given up.
func TestATokenThatIsNoneIsRefusedWithoutARequest(t *testing.T) {
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		s, db := serve(t, leaseA, own)
		gone, giveUp := context.WithCancel(t.Context())
		giveUp()
		for _, none := range []table.Token{0, -1} {
			for _, ctx := range []context.Context{t.Context(), gone} {
				f := behind(db, "a")
				f.Token = none
				_, err := try(ctx, f)
				assert.ErrorIs(t, err, fence.ErrFenced, "%v", none)
				assert.ErrorContains(t, err, "wrapped", "%v", none)
				f.Wrap, f.Table.DB = nil, nil
				_, err = try(ctx, f)
				assert.ErrorIs(t, err, fence.ErrFenced, "of no lock: %v", none)
			}
		}
		_, err := try(t.Context(), behind(nil, "a"))
		assert.NotErrorIs(t, err, fence.ErrFenced)
		assert.ErrorContains(t, err, "wrapped: this lock table is in memory", "and no table either")
		assert.Empty(t, s.commits)
		assert.Empty(t, s.begins)
		assert.Empty(t, s.reads)
	})
}

// Without a database, a test learns whether a write would be fenced, and no part of the write is run.
func TestAWriteToATableInMemoryIsAnsweredByItsToken(t *testing.T) {
	rows := table.Table{Store: &memstore.Store{}}
	hold := func(name string) table.Token {
		seen, err := rows.LookAtLeases(t.Context(), time.Now(), name)
		require.NoError(t, err)
		token, err := rows.Claim(t.Context(), "somebody", seen...)
		require.NoError(t, err)
		require.NoError(t, rows.Confirm(t.Context(), token, table.LeaseRecord{Lease: time.Minute, ID: "somebody"}, name))
		return token
	}
	f := behind(nil, "a")
	f.Table.Memory, f.Token = rows.Store, hold("a")
	never := func(context.Context, *spanner.ReadWriteTransaction) error { t.Error("called"); return nil }
	both := func() [2]error {
		_, apply := f.Apply(t.Context(), write())
		_, transaction := f.ReadWriteTransaction(t.Context(), never)
		return [2]error{apply, transaction}
	}
	result := both()
	assert.NoError(t, result[0])
	assert.ErrorContains(t, result[1], "wrapped: this lock table is in memory and can't run a transaction", "what was not run has not succeeded")
	f.Names = []string{"a", "b"}
	for _, err := range both() {
		assert.ErrorIs(t, err, fence.ErrFenced, "only one of the two is held")
	}
	gone := 0
	f.Names, f.Gone = []string{"a"}, func() { gone++ }
	both()
	assert.Zero(t, gone)
	hold("a")
	for _, err := range both() {
		assert.ErrorIs(t, err, fence.ErrFenced)
		assert.ErrorContains(t, err, "wrapped")
		assert.ErrorContains(t, err, "only the token was checked")
	}
	assert.Equal(t, 2, gone, "each says that the lock is gone")
}

// Each refused write is reported once with its reason, and the owner learns once that its lock is gone. No other write is
// reported.
func TestAFencedWriteIsReportedOnce(t *testing.T) {
	for how, try := range ways {
		r := fleet.NewReports()
		s, db := serve(t, leaseA, own)
		f := behind(db, "a", "b")
		f.About.Meters, f.About.Tracers = r.Meters, r.Tracers
		gone := 0
		f.Gone = func() { gone++ }
		s.rows[leaseB] = true
		_, err := try(t.Context(), f)
		require.NoError(t, err)
		s.remove(own)
		_, err = try(t.Context(), f)
		require.Error(t, err)
		assert.Empty(t, r.Metrics(t), how)
		assert.Empty(t, r.Spans(), how)
		assert.Zero(t, gone, how)
		s.remove(leaseB)
		_, err = try(t.Context(), f)
		require.ErrorIs(t, err, fence.ErrFenced)
		assert.Equal(t, 1, gone, how)
		assert.Equal(t, map[string]float64{"fenced{lock=a}": 1, "fenced{lock=b}": 1}, r.Metrics(t), how)
		require.Equal(t, []string{"fence!"}, r.Spans(), how)
		assert.Equal(t, err.Error(), r.Ended()[0].Status().Description, how)
	}
}

// A table's name is used in SQL without quotes. If it is not an identifier, the statement is one that Spanner refuses.
// A commit to a table that does not exist is not reported as fenced.
func TestATableThatIsNoneFencesNothing(t *testing.T) {
	for dialect, want := range map[databasepb.DatabaseDialect]string{
		databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL: "UPDATE locktable SET writer = writer WHERE name = @p1",
		databasepb.DatabaseDialect_POSTGRESQL:          "UPDATE locktable SET writer = writer WHERE name = $1",
	} {
		f := behind(nil, "a")
		assert.Equal(t, spanner.Statement{SQL: want, Params: map[string]any{"p1": leaseA}}, f.Statement(dialect))
		for _, name := range []string{"", "a b", "a;DROP TABLE b", "`a`", "1a", "a.b.c"} {
			f.Table.Table = name
			assert.Equal(t, spanner.Statement{}, f.Statement(dialect), "%q", name)
		}
	}
	inEachWay(t, func(t *testing.T, try func(context.Context, fence.Fence) (time.Time, error)) {
		s, db := serve(t)
		gone := status.Error(codes.NotFound, "Table not found: locktable")
		s.commit = func(int) error { return gone }
		s.read = func(name string) error {
			if name == "locktable" {
				return gone
			}
			return nil
		}
		_, err := try(t.Context(), behind(db, "a"))
		assert.NotErrorIs(t, err, fence.ErrFenced)
		assert.ErrorContains(t, err, "it is not known whether the fence refused the commit")
		assert.True(t, table.Missing(err) || errors.Is(err, table.ErrMissing))
	})
}

// The fence holds only under serializable isolation, so neither the caller nor the client's settings can choose the
// isolation level. All other options can be chosen.
func TestTheCallersOptionsDoNotWeakenTheFence(t *testing.T) {
	weak, delay := sppb.TransactionOptions_REPEATABLE_READ, 7*time.Millisecond
	commit := spanner.CommitOptions{MaxCommitDelay: &delay}
	opts := []spanner.ApplyOption{spanner.IsolationLevel(weak), spanner.Priority(sppb.RequestOptions_PRIORITY_LOW),
		spanner.TransactionTag("mine"), spanner.ApplyCommitOptions(commit)}
	clients := map[string]spanner.ClientConfig{
		"a plain client": {},
		"a weak client": {ApplyOptions: opts, TransactionOptions: spanner.TransactionOptions{IsolationLevel: weak, CommitOptions: commit,
			CommitPriority: sppb.RequestOptions_PRIORITY_LOW, TransactionTag: "mine"}},
	}
	for client, config := range clients {
		for how, try := range map[string]func(fence.Fence) error{
			"Apply": func(f fence.Fence) error { _, err := f.Apply(t.Context(), write(), opts...); return err },
			"Apply at least once": func(f fence.Fence) error {
				_, err := f.Apply(t.Context(), write(), append(opts, spanner.ApplyAtLeastOnce())...)
				return err
			},
			"a transaction": func(f fence.Fence) error { _, err := f.ReadWriteTransaction(t.Context(), within); return err },
		} {
			s, _ := serve(t, leaseA, own)
			require.NoError(t, try(behind(s.client(t, config), "a")))
			require.Len(t, s.commits, 1)
			sent := s.commits[0]
			for _, o := range append(s.begins, sent.GetSingleUseTransaction()) {
				if o != nil {
					assert.Equal(t, sppb.TransactionOptions_SERIALIZABLE, o.GetIsolationLevel(), "%s of %s", how, client)
				}
			}
			if how != "a transaction" || client == "a weak client" {
				assert.Equal(t, sppb.RequestOptions_PRIORITY_LOW, sent.GetRequestOptions().GetPriority(), "%s of %s", how, client)
				assert.Equal(t, "mine", sent.GetRequestOptions().GetTransactionTag(), "%s of %s", how, client)
				assert.Equal(t, delay, sent.GetMaxCommitDelay().AsDuration(), "%s of %s", how, client)
			}
		}
	}
}

// A slice that the caller passes is not modified, even if it has spare capacity.
func TestWhatTheCallerGivesIsLeftAsItIs(t *testing.T) {
	_, db := serve(t, leaseA, own)
	opts, ms := make([]spanner.ApplyOption, 1, 4), make([]*spanner.Mutation, 1, 4)
	opts[0], ms[0] = spanner.TransactionTag("mine"), write()[0]
	_, err := behind(db, "a").Apply(t.Context(), ms, opts...)
	require.NoError(t, err)
	assert.Nil(t, opts[:2][1])
	assert.Nil(t, ms[:2][1])
	assert.Equal(t, write()[0], ms[0])
}
