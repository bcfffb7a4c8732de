//go:build unix

package spindle_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/network"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// The tests in this file cover the rows of the fault table in docs/locks.md, on a real emulator and in both dialects.
// Tests that need an exact clock are in internal/elect.

const lease = time.Second

// roundTrips is the time that a takeover may take in addition to the lease, to observe, claim and confirm on a busy
// machine.
const roundTrips = lease

func inBothDialects(t *testing.T, f func(t *testing.T, db *spindletest.Database)) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
	t.Run("GoogleSQL", func(t *testing.T) {
		t.Parallel()
		f(t, spindletest.New(t, spindletest.WithDDL(registerDDL)))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		f(t, spindletest.New(t, spindletest.PostgreSQL(),
			spindletest.WithDDL(`CREATE TABLE register (id bigint NOT NULL PRIMARY KEY, value bigint)`)))
	})
}

// connect opens a separate client on db.
func connect(t testing.TB, db *spindletest.Database, opts ...option.ClientOption) *spanner.Client {
	t.Helper()
	client, err := spanner.NewClientWithConfig(context.Background(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true},
		append(db.ClientOptions(), opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// newLink returns the network link between a client and db.
func newLink(t testing.TB, db *spindletest.Database) *network.Link {
	t.Helper()
	link, err := network.NewLink(db.Host)
	require.NoError(t, err)
	t.Cleanup(link.Close)
	return link
}

// standing is a lock that runs in this process until the test ends.
type standing struct {
	*spindle.Lock
	stop func() error

	mu     sync.Mutex
	events []spindle.Event
}

func stand(t testing.TB, client *spanner.Client, db *spindletest.Database, opts ...spindle.Option) *standing {
	t.Helper()
	s := &standing{}
	opts = append([]spindle.Option{spindle.WithLease(lease), spindle.WithLogger(slog.New(slog.DiscardHandler)), spindle.WithObserver(s.observe)}, opts...)
	s.Lock = spindle.New(client, db.Table, "mylock", opts...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	require.NoError(t, s.Run(ctx, done))
	s.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = s.stop() })
	return s
}

func (s *standing) observe(e spindle.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *standing) saw(kind spindle.EventKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

func (s *standing) has() bool { ok, _ := s.HasLock(); return ok }

func (s *standing) token() spindle.Token { _, token := s.HasLock(); return token }

func eventually(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, limit, time.Millisecond, what)
}

func applyDDL(t testing.TB, db *spindletest.Database, statement string) {
	t.Helper()
	admin, err := database.NewDatabaseAdminClient(t.Context(), db.ClientOptions()...)
	require.NoError(t, err)
	defer admin.Close()
	for late := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		op, err := admin.UpdateDatabaseDdl(t.Context(), &databasepb.UpdateDatabaseDdlRequest{Database: db.Path, Statements: []string{statement}})
		if err == nil {
			err = op.Wait(t.Context())
		}
		if err == nil {
			return
		}
		// The emulator refuses this while a transaction is running.
		require.ErrorContains(t, err, "read-write transaction is already in progress")
		require.True(t, time.Now().Before(late), "%s: %v", statement, err)
	}
}

func write(value int64) []*spanner.Mutation {
	return []*spanner.Mutation{spanner.InsertOrUpdate("register", []string{"id", "value"}, []any{1, value})}
}

func register(t testing.TB, db *spindletest.Database) int64 {
	t.Helper()
	row, err := db.Client.Single().ReadRow(t.Context(), "register", spanner.Key{1}, []string{"value"})
	require.NoError(t, err)
	var value spanner.NullInt64
	require.NoError(t, row.Columns(&value))
	return value.Int64
}

func TestHolderIsKilled(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		const lease = 3 * lease // a takeover that takes seconds more than a lease, on a machine that compiles, is within two leases
		c := newCluster(t, db, candidate{Name: "mylock", Lease: lease})
		c.start()
		c.start()
		c.start()
		leader, held := c.elected(time.Time{})
		for _, p := range c.all {
			c.says(p, "started", time.Time{})
		}
		for range 2 {
			killed := c.kill(leader)
			next, now := c.elected(killed)
			assert.LessOrEqual(t, now.At-killed.UnixNano(), int64(2*lease))
			assert.Greater(t, now.Token, held.Token)
			leader, held = next, now
		}
	})
}

func TestHolderIsStoppedAndAsksForTheLock(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		c := newCluster(t, db, candidate{Name: "mylock", Lease: 3 * lease})
		c.start()
		c.start()
		paused, held := c.elected(time.Time{})
		require.Equal(t, "applied", c.do(paused, command{Fenced: true, Token: held.Token, Value: 1}).Kind)

		stopped := c.signal(paused, syscall.SIGSTOP)
		next, now := c.elected(stopped)
		require.Equal(t, "applied", c.do(next, command{Fenced: true, Token: now.Token, Value: 2}).Kind)

		resumed := c.signal(paused, syscall.SIGCONT)
		assert.False(t, c.says(paused, "resumed", resumed).Has, "the first HasLock after the pause")
		assert.Equal(t, "fenced", c.do(paused, command{Fenced: true, Token: held.Token, Value: 3}).Kind)
		assert.EqualValues(t, 2, register(t, db))
		assert.Equal(t, "applied", c.do(paused, command{Value: 4}).Kind, "what the fence is for")
	})
}

func TestHolderIsTerminated(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		c := newCluster(t, db, candidate{Name: "mylock", Lease: 10 * lease})
		c.start()
		leader, _ := c.elected(time.Time{})
		c.start()
		asked := c.signal(leader, syscall.SIGTERM)
		assert.Empty(t, c.says(leader, "stopped", time.Time{}).Err)
		_, now := c.elected(asked)
		assert.Less(t, now.At-asked.UnixNano(), int64(5*lease), "half a lease: it was not waited out")
	})
}

func TestARestartedProcessReclaimsItsOwnTerm(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		c := newCluster(t, db, candidate{Name: "mylock", Lease: time.Minute, ID: "pod-0", Reclaim: true})
		c.start()
		leader, _ := c.elected(time.Time{})
		killed := c.kill(leader)
		c.start()
		_, now := c.elected(killed)
		assert.Less(t, now.At-killed.UnixNano(), int64(10*time.Second))
	})
}

func TestHolderIsCutOff(t *testing.T) {
	for name, fault := range map[string]func(*network.Link){"refused": (*network.Link).Cut, "black hole": (*network.Link).BlackHole} {
		t.Run(name, func(t *testing.T) {
			inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
				way := newLink(t, db)
				cut := stand(t, connect(t, db, option.WithEndpoint(way.Addr())), db, spindle.WithLease(3*lease))
				eventually(t, 10*time.Second, "election", cut.has)
				other := stand(t, db.Client, db)
				token := cut.token()

				fault(way)
				eventually(t, 4*lease, "stepping down", func() bool {
					// The order matters, because the report of other must be newer than that of cut.
					had := cut.has()
					assert.False(t, had && other.has() && cut.has(), "two holders")
					return !had
				})
				eventually(t, 3*lease+roundTrips, "takeover", other.has)
				assert.True(t, cut.saw(spindle.Jeopardy))
				way.Mend()
				_, err := cut.Apply(t.Context(), token, write(1))
				assert.ErrorIs(t, err, spindle.ErrFenced)
			})
		})
	}
}

func TestHeartbeatsFailForLessThanALease(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		way := newLink(t, db)
		holder := stand(t, connect(t, db, option.WithEndpoint(way.Addr())), db, spindle.WithLease(6*lease))
		eventually(t, 10*time.Second, "election", holder.has)
		token := holder.token()
		way.BlackHole()
		eventually(t, 6*lease, "jeopardy", func() bool { return holder.saw(spindle.Jeopardy) })
		way.Mend()
		eventually(t, 6*lease, "safe", func() bool { return holder.saw(spindle.Safe) })
		assert.Equal(t, token, holder.token())
		assert.False(t, holder.saw(spindle.Lost))
	})
}

// losingReplies lets the first commit with the given tag take effect, and drops its reply.
func losingReplies(tag string, lost *atomic.Bool) option.ClientOption {
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if r, ok := req.(*sppb.CommitRequest); ok && err == nil && r.GetRequestOptions().GetTransactionTag() == tag && lost.CompareAndSwap(false, true) {
				return status.Error(codes.Internal, "reply lost by the test")
			}
			return err
		}))
}

func TestOutcomeOfAClaimIsUnknown(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		var lost atomic.Bool
		l := stand(t, connect(t, db, losingReplies("spindle-claim", &lost)), db)
		eventually(t, 10*time.Second, "a claim", lost.Load)
		start := time.Now()
		eventually(t, 10*time.Second, "election", func() bool {
			if l.has() {
				return true
			}
			assert.Less(t, time.Since(start), lease+roundTrips, "one lease is waited out at worst")
			return false
		})
	})
}

func TestOutcomeOfAConfirmationIsUnknown(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		var lost atomic.Bool
		l := stand(t, connect(t, db, losingReplies("spindle-confirm", &lost)), db, spindle.WithLease(20*lease))
		eventually(t, 10*time.Second, "a confirmation", lost.Load)
		eventually(t, 10*time.Second, "election, told by a heartbeat", l.has)
		_, err := l.Apply(t.Context(), l.token(), write(1))
		assert.NoError(t, err)
	})
}

func TestHolderAndCandidateHaveDifferentLeases(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		way := newLink(t, db)
		long := stand(t, connect(t, db, option.WithEndpoint(way.Addr())), db, spindle.WithLease(3*lease))
		eventually(t, 10*time.Second, "election", long.has)
		short := stand(t, db.Client, db, spindle.WithLease(lease/5))
		eventually(t, 10*time.Second, "a look", func() bool { return short.saw(spindle.LeaderSeen) })
		way.Cut()
		for long.has() {
			had := short.has()
			require.False(t, had && long.has(), "the holder's lease counts")
			time.Sleep(time.Millisecond)
		}
		eventually(t, 10*time.Second, "takeover", short.has)
	})
}

func TestRowIsDeletedUnderAHolder(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		l := stand(t, db.Client, db)
		eventually(t, 10*time.Second, "election", l.has)
		token := l.token()
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete(db.Table, spanner.AllKeys())})
		require.NoError(t, err)
		eventually(t, 10*time.Second, "a later term", func() bool { return l.token() > token })
		_, err = l.Apply(t.Context(), token, write(1))
		assert.ErrorIs(t, err, spindle.ErrFenced)
	})
}

func TestTableIsDroppedUnderAHolder(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		l := stand(t, db.Client, db)
		eventually(t, 10*time.Second, "election", l.has)
		token := l.token()
		applyDDL(t, db, "DROP TABLE "+db.Table)
		eventually(t, 2*lease, "stepping down", func() bool { return !l.has() })
		require.NoError(t, ddl.Create(t.Context(), db.Path, db.Table, db.ClientOptions()...))
		eventually(t, 10*time.Second, "a later term", func() bool { return l.token() > token })
	})
}

func TestSpannerIsAwayForLongerThanALease(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		way := newLink(t, db)
		client := connect(t, db, option.WithEndpoint(way.Addr()))
		ls := []*standing{stand(t, client, db), stand(t, client, db), stand(t, client, db)}
		holders := func() (n int) {
			for _, l := range ls {
				if l.has() {
					n++
				}
			}
			return n
		}
		eventually(t, 10*time.Second, "election", func() bool { return holders() == 1 })
		way.Cut()
		eventually(t, 2*lease, "stepping down", func() bool { return holders() == 0 })
		time.Sleep(2 * lease) // the outage itself
		require.Zero(t, holders())
		way.Mend()
		eventually(t, 20*time.Second, "one holder again", func() bool { return holders() == 1 })
	})
}

func TestFence(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		ctx := t.Context()
		l := stand(t, db.Client, db, spindle.WithLease(20*lease)) // it is to be released, not to expire
		eventually(t, 10*time.Second, "election", l.has)
		token := l.token()
		missing := []*spanner.Mutation{spanner.Update("register", []string{"id", "value"}, []any{99, 1})}
		inTransaction := func(ms []*spanner.Mutation) error {
			_, err := l.ReadWriteTransaction(ctx, token, func(_ context.Context, txn *spanner.ReadWriteTransaction) error {
				return txn.BufferWrite(ms)
			})
			return err
		}
		own := status.Error(codes.NotFound, "the caller's own")
		refusing := func() error {
			_, err := l.ReadWriteTransaction(ctx, token, func(context.Context, *spanner.ReadWriteTransaction) error { return own })
			return err
		}

		_, err := l.Apply(ctx, token, write(1))
		require.NoError(t, err)
		require.NoError(t, inTransaction(write(2)))
		require.EqualValues(t, 2, register(t, db))
		_, err = l.Apply(ctx, token, write(3), spanner.ApplyAtLeastOnce())
		require.NoError(t, err)
		for name, err := range map[string]error{
			"Apply": func() error { _, err := l.Apply(ctx, token, missing); return err }(), "ReadWriteTransaction": inTransaction(missing), "fn": refusing(),
		} {
			assert.Equal(t, codes.NotFound, spanner.ErrCode(err), name)
			assert.NotErrorIs(t, err, spindle.ErrFenced, "a row of the caller's own was missing: "+name)
		}

		require.NoError(t, l.stop())
		_, err = l.Apply(ctx, token, write(4))
		assert.ErrorIs(t, err, spindle.ErrFenced)
		assert.ErrorIs(t, inTransaction(write(4)), spindle.ErrFenced)
		assert.NotErrorIs(t, refusing(), spindle.ErrFenced)
		for _, never := range []spindle.Token{0, -1, 1} {
			_, err = l.Apply(ctx, never, write(4))
			assert.ErrorIs(t, err, spindle.ErrFenced)
		}
		assert.EqualValues(t, 3, register(t, db), "nothing was written through the fence")
	})
}

func TestLeader(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		onlooker := spindle.New(db.Client, db.Table, "mylock")
		_, err := onlooker.Leader(t.Context())
		require.ErrorIs(t, err, spindle.ErrNoLeader)

		l := stand(t, db.Client, db, spindle.WithLease(20*lease), spindle.WithID("host-1"), spindle.WithValue("http://10.0.0.7:8080"))
		eventually(t, 10*time.Second, "election", l.has)
		leader, err := onlooker.Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, spindle.Leader{ID: "host-1", Value: "http://10.0.0.7:8080", Token: l.token(), Lease: 20 * lease, Heartbeat: leader.Heartbeat}, leader)
		assert.WithinDuration(t, time.Now(), leader.Heartbeat, 20*lease)

		require.NoError(t, l.stop())
		_, err = onlooker.Leader(t.Context())
		assert.ErrorIs(t, err, spindle.ErrNoLeader)
	})
}

func TestAWrongTableIsReportedAndItsMendIsNoticed(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		applyDDL(t, db, "DROP TABLE "+db.Table)
		_, err := spindle.New(db.Client, db.Table, "mylock").Leader(t.Context())
		require.ErrorContains(t, err, "ddl.Create")
		assert.NotErrorIs(t, err, spindle.ErrNoLeader, "a missing table is not a free lock")

		l := stand(t, db.Client, db)
		time.Sleep(lease)
		require.False(t, l.has())
		require.NoError(t, ddl.Create(t.Context(), db.Path, db.Table, db.ClientOptions()...))
		eventually(t, 10*time.Second, "election", l.has)
	})
}

// refusingReads responds with err to each read with the given tag and to each request to begin a transaction.
func refusingReads(tag string, err error) option.ClientOption {
	return option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, failed := streamer(ctx, desc, cc, method, opts...)
			if failed != nil {
				return s, failed
			}
			return &refusing{s, tag, err}, nil
		}))
}

type refusing struct {
	grpc.ClientStream
	tag string
	err error
}

func (r *refusing) SendMsg(m any) error {
	if read, ok := m.(*sppb.ReadRequest); ok && read.GetRequestOptions().GetRequestTag() == r.tag {
		return r.err
	}
	return r.ClientStream.SendMsg(m)
}

func TestAnErrorOfAClaimIsSaidWithItsHint(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		denied := status.Error(codes.PermissionDenied, "missing spanner.databases.beginOrRollbackReadWriteTransaction")
		client := connect(t, db, refusingReads("spindle-claim", denied))
		var log fleet.Log
		l := stand(t, client, db, spindle.WithLease(20*lease), // no request takes so long that this is reported, too
			spindle.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))))
		eventually(t, 10*time.Second, "the cause, not that Spanner aborted it", func() bool {
			return strings.Contains(log.String(), "beginOrRollbackReadWriteTransaction") && strings.Contains(log.String(), "roles/spanner.databaseUser")
		})
		assert.False(t, l.has())
		assert.Equal(t, 1, strings.Count(log.String(), "\n"), "once: %s", log.String())
	})
}

func TestACandidateWhoseValueTheTableRefusesDoesNotKeepTheLockFromOthers(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		column := map[bool]string{false: "ALTER TABLE " + db.Table + " ALTER COLUMN writer STRING(200)", true: "ALTER TABLE " + db.Table + " ALTER COLUMN writer TYPE varchar(200)"}
		applyDDL(t, db, column[strings.HasSuffix(t.Name(), "PostgreSQL")])
		sick := stand(t, connect(t, db), db, spindle.WithValue(strings.Repeat("x", 200)))
		well := stand(t, db.Client, db, spindle.WithLease(2*lease))
		eventually(t, 10*lease, "election", well.has)
		assert.False(t, sick.has())
	})
}

// In the caller's own transaction, IsFenced distinguishes the fence's error from errors of the caller's rows.
func TestTheFenceInATransactionOfOnesOwnCanBeTold(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		elector, table := spindle.New(db.Client, db.Table, "a \"lock\"]"), db.Table
		never := elector.Fence(spindle.Token(time.Now().UnixMicro()))
		ownMissing := spanner.Update("register", []string{"id", "value"}, []any{99, 1})
		commit := func(ms ...*spanner.Mutation) error {
			_, err := db.Client.Apply(t.Context(), ms)
			_, again := db.Client.ReadWriteTransaction(t.Context(), func(_ context.Context, txn *spanner.ReadWriteTransaction) error { return txn.BufferWrite(ms) })
			assert.Equal(t, spindle.IsFenced(err, table), spindle.IsFenced(again, table))
			assert.Equal(t, codes.NotFound, spanner.ErrCode(err))
			return err
		}
		assert.True(t, spindle.IsFenced(commit(never, write(1)[0]), table))
		assert.True(t, spindle.IsFenced(commit(elector.Fence(0), write(1)[0]), table), "the zero token's")
		assert.False(t, spindle.IsFenced(commit(ownMissing), table))
		assert.False(t, spindle.IsFenced(commit(spanner.Update(table, []string{"name"}, []any{"mylock"})), table), "a lock row")
		assert.False(t, spindle.IsFenced(commit(never), "othertable"))
		_, err := elector.Apply(t.Context(), 1, write(1))
		assert.True(t, spindle.IsFenced(err, table), "what Apply says")
		assert.False(t, spindle.IsFenced(nil, table))
	})
}

// A transaction that uses only SQL commits only while the statement finds the lease row, which the statement does not
// change.
func TestAStatementFencesATransactionThatIsAllSQL(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		dialect := databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL
		if strings.HasSuffix(t.Name(), "PostgreSQL") {
			dialect = databasepb.DatabaseDialect_POSTGRESQL
		}
		l := stand(t, db.Client, db, spindle.WithLease(10*lease))
		eventually(t, 10*time.Second, "election", l.has)
		token := l.token()
		set := func(token spindle.Token, value string) error {
			_, err := db.Client.ReadWriteTransaction(t.Context(), func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
				if _, err := txn.Update(ctx, spanner.NewStatement("UPDATE register SET value = "+value+" WHERE id = 1")); err != nil {
					return err
				}
				if n, err := txn.Update(ctx, l.FenceStatement(dialect, token)); n != 1 {
					return errors.Join(err, spindle.ErrFenced)
				}
				return nil
			})
			return err
		}
		rows := func() (all []spanner.Row) {
			require.NoError(t, db.Client.Single().Read(t.Context(), db.Table, spanner.KeySets(spanner.KeyRange{Start: spanner.Key{"mylock_"}, End: spanner.Key{"mylock_z"}}),
				[]string{"name", "heartbeat", "token", "writer"}).Do(func(r *spanner.Row) error { all = append(all, *r); return nil }))
			return all
		}
		_, err := db.Client.Apply(t.Context(), write(1))
		require.NoError(t, err)
		lease := rows()
		require.Len(t, lease, 1)
		require.NoError(t, set(token, "2"))
		assert.Equal(t, lease, rows(), "it changes nothing")
		for name, token := range map[string]spindle.Token{"zero": 0, "earlier": token - 1, "later": token + 1} {
			assert.ErrorIs(t, set(token, "3"), spindle.ErrFenced, name)
		}
		require.NoError(t, l.stop())
		next := stand(t, db.Client, db, spindle.WithLease(20*time.Second))
		eventually(t, 10*time.Second, "the next election", next.has)
		assert.ErrorIs(t, set(token, "4"), spindle.ErrFenced, "superseded")
		assert.EqualValues(t, 2, register(t, db), "nothing of a refused transaction was written")
		assert.NoError(t, set(next.token(), "5"))

		wrong := spindle.New(db.Client, "register; DROP TABLE register", "mylock")
		assert.Equal(t, spanner.Statement{}, wrong.FenceStatement(dialect, next.token()), "a name that is none is in no SQL")
	})
}

func TestACommitOfAnOldTokenIsFencedWhateverElseIsWrongWithIt(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		l := stand(t, db.Client, db, spindle.WithLease(20*lease)) // it is to be released, not to expire
		eventually(t, 10*time.Second, "election", l.has)
		token := l.token()
		made := []*spanner.Mutation{spanner.Insert("register", []string{"id", "value"}, []any{7, 1})}
		gone := []*spanner.Mutation{spanner.Update("register", []string{"id", "value"}, []any{8, 1})}
		_, err := l.Apply(t.Context(), token, made) // as the next leader would do
		require.NoError(t, err)
		for _, ms := range [][]*spanner.Mutation{made, gone} {
			_, err = l.Apply(t.Context(), token, ms)
			assert.NotErrorIs(t, err, spindle.ErrFenced, "while the token is valid it is something else")
		}
		require.NoError(t, l.stop())
		for _, ms := range [][]*spanner.Mutation{made, gone} {
			_, err = l.Apply(t.Context(), token, ms)
			assert.ErrorIs(t, err, spindle.ErrFenced)
			_, err = l.Apply(t.Context(), token, ms, spanner.ApplyAtLeastOnce())
			assert.ErrorIs(t, err, spindle.ErrFenced)
			_, err = l.ReadWriteTransaction(t.Context(), token, func(_ context.Context, txn *spanner.ReadWriteTransaction) error { return txn.BufferWrite(ms) })
			assert.ErrorIs(t, err, spindle.ErrFenced)
		}
	})
}

func TestATableWithoutCommitTimestampsIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	db := spindletest.New(t)
	applyDDL(t, db, "DROP TABLE "+db.Table)
	applyDDL(t, db, "CREATE TABLE "+db.Table+" (name STRING(MAX) NOT NULL, heartbeat TIMESTAMP, token TIMESTAMP, writer STRING(MAX)) PRIMARY KEY (name)")
	var log fleet.Log
	l := stand(t, db.Client, db, spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	eventually(t, 10*time.Second, "a hint", func() bool { return strings.Contains(log.String(), "ddl.Verify says what is wrong") })
	time.Sleep(2 * lease) // it keeps trying, and does not report the problem again
	assert.False(t, l.has())
	assert.Equal(t, 1, strings.Count(log.String(), "ddl.Verify"))
	applyDDL(t, db, "DROP TABLE "+db.Table)
	require.NoError(t, ddl.Create(t.Context(), db.Path, db.Table, db.ClientOptions()...))
	eventually(t, 10*time.Second, "election, once it is mended", l.has)
}

func TestNothingIsLeftRunning(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	before := goleak.IgnoreCurrent()
	t.Run("three runs", func(t *testing.T) {
		db := spindletest.New(t)
		for range 3 {
			var led atomic.Int32
			l := stand(t, db.Client, db, spindle.WithLease(20*lease),
				spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { led.Add(1); <-ctx.Done() }))
			eventually(t, 10*time.Second, "the leader function", func() bool { return led.Load() == 1 })
			require.NoError(t, l.stop())
		}
	})
	testcheck.NoLeak(t, before)
}

func TestAWriteThatWasRefusedIsCountedAndHasASpan(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		r := fleet.NewReports()
		l := spindle.New(db.Client, db.Table, "fenced", r.Options(), quiet)
		write := []*spanner.Mutation{spanner.InsertOrUpdate("register", []string{"id", "value"}, []any{1, "x"})}
		_, err := l.Apply(t.Context(), 1_700_000_000_000_000, write)
		require.ErrorIs(t, err, spindle.ErrFenced)
		assert.Equal(t, map[string]float64{"fenced{lock=fenced}": 1}, r.Metrics(t))
		assert.Equal(t, []string{"fence!"}, r.Spans())

		_, err = l.ReadWriteTransaction(t.Context(), 0, func(context.Context, *spanner.ReadWriteTransaction) error { return nil })
		require.ErrorIs(t, err, spindle.ErrFenced)
		assert.Equal(t, map[string]float64{"fenced{lock=fenced}": 2}, r.Metrics(t), "that was not even sent")
	})
}

// One commit can be fenced by both the term of an election and a mutex, on a real database.
func TestACommitIsUnderATermAndAMutex(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		terms := make(chan spindle.Term, 1)
		l := stand(t, db.Client, db, spindle.WithLease(20*lease),
			spindle.WithLeader(func(ctx context.Context, term spindle.Term) { terms <- term; <-ctx.Done() }))
		term := <-terms
		accounts := lock.New(db.Client, db.Table, "accounts")
		require.NoError(t, accounts.Lock(t.Context()))
		write := []*spanner.Mutation{spanner.InsertOrUpdate("register", []string{"id", "value"}, []any{1, 7})}
		_, err := spindle.Apply(t.Context(), []spindle.Holding{term, accounts}, write)
		require.NoError(t, err)

		require.NoError(t, accounts.Unlock(t.Context()))
		_, err = spindle.Apply(t.Context(), []spindle.Holding{term, accounts}, write)
		require.ErrorIs(t, err, spindle.ErrFenced, "one is not held any more")
		assert.ErrorContains(t, err, "accounts")

		require.NoError(t, accounts.Lock(t.Context()))
		require.NoError(t, l.stop())
		_, err = spindle.Apply(t.Context(), []spindle.Holding{term, accounts}, write)
		require.ErrorIs(t, err, spindle.ErrFenced, "nor is the other")
		assert.ErrorContains(t, err, "mylock")
		require.NoError(t, accounts.Unlock(t.Context()))
	})
}

// A refused commit is followed by a read of the lease row, which ends the term.
func TestARefusedCommitEndsItsTermAtOnce(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		ended := make(chan error, 1)
		l := stand(t, db.Client, db, spindle.WithLease(time.Hour), // so that no heartbeat notices it
			spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done(); ended <- context.Cause(ctx) }))
		token, err := l.WaitElected(t.Context())
		require.NoError(t, err)
		write := []*spanner.Mutation{spanner.InsertOrUpdate("register", []string{"id", "value"}, []any{1, 7})}
		for _, no := range []spindle.Token{0, token - 1} {
			_, err = l.Apply(t.Context(), no, write)
			require.ErrorIs(t, err, spindle.ErrFenced)
		}
		has, _ := l.HasLock()
		require.True(t, has)
		_, err = db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete(db.Table, spanner.Key{table.LeaseKey("mylock", table.Token(token))})})
		require.NoError(t, err)
		_, err = l.ReadWriteTransaction(t.Context(), token, func(_ context.Context, txn *spanner.ReadWriteTransaction) error {
			return txn.BufferWrite(write)
		})
		require.ErrorIs(t, err, spindle.ErrFenced)
		has, _ = l.HasLock()
		assert.False(t, has)
		assert.Equal(t, spindle.ErrSuperseded, <-ended)
	})
}
