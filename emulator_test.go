//go:build unix

package spindle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
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
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/network"
	"github.com/spindle-lock/spindle/spindletest"
)

// The tests in this file cover the rows of the fault table in docs/locks.md, on a real emulator and in both dialects.
// Tests that need an exact clock are in internal/elect.

const lease = time.Second

func inBothDialects(t *testing.T, f func(t *testing.T, db *spindletest.Database)) {
	onTheEmulator(t)
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

// onTheEmulator lets a test run beside others that wait for the emulator.
func onTheEmulator(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
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

// patience is how long a test waits for anything. A busy machine can take minutes for what otherwise takes milliseconds.
const patience = 3 * time.Minute

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, time.Millisecond, what)
}

// stepsDown waits until has returns false. It fails the test if has returns true although the call began after the
// limit. A slow machine does not make it fail, because the clock is read before the call.
func stepsDown(t testing.TB, limit time.Duration, has func() bool) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		asked := time.Since(start)
		if !has() {
			return
		}
		require.Less(t, asked, limit, "the lock is still held")
	}
}

// withLonger calls f with one lease after another, each twice as long, until f returns true. A short lease can leave a
// busy machine too little time.
func withLonger(t testing.TB, first time.Duration, f func(lease time.Duration) bool) {
	t.Helper()
	for lease := first; !f(lease); lease *= 2 {
		require.Less(t, lease, 8*first, "this lease and all shorter ones failed")
	}
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
		withLonger(t, 3*lease, func(lease time.Duration) bool {
			c := newCluster(t, db, lease)
			defer c.kill()
			c.start()
			c.start()
			c.start()
			leader, held := c.elected(time.Time{})
			for _, p := range c.all {
				c.says(p, "started", time.Time{})
			}
			longest := int64(0)
			for range 2 {
				killed := c.signal(leader, syscall.SIGKILL)
				next, now := c.elected(killed)
				longest = max(longest, now.At-killed.UnixNano())
				assert.Greater(t, now.Token, held.Token)
				leader, held = next, now
			}
			return longest <= int64(2*lease)
		})
	})
}

func TestHolderIsStoppedAndAsksForTheLock(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		c := newCluster(t, db, 3*lease)
		c.start()
		c.start()
		paused, held := c.elected(time.Time{})
		require.Equal(t, "applied", c.do(paused, command{Fenced: true, Token: held.Token, Value: 1}))

		stopped := c.signal(paused, syscall.SIGSTOP)
		next, now := c.elected(stopped)
		require.Equal(t, "applied", c.do(next, command{Fenced: true, Token: now.Token, Value: 2}))

		resumed := c.signal(paused, syscall.SIGCONT)
		assert.False(t, c.says(paused, "resumed", resumed).Has, "the first HasLock after the pause")
		assert.Equal(t, "fenced", c.do(paused, command{Fenced: true, Token: held.Token, Value: 3}))
		assert.EqualValues(t, 2, register(t, db))
		assert.Equal(t, "applied", c.do(paused, command{Value: 4}), "what the fence is for")
	})
}

func TestHolderIsCutOff(t *testing.T) {
	for name, fault := range map[string]func(*network.Link){"refused": (*network.Link).Cut, "black hole": (*network.Link).BlackHole} {
		t.Run(name, func(t *testing.T) {
			inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
				way := newLink(t, db)
				cut := stand(t, connect(t, db, option.WithEndpoint(way.Addr())), db, spindle.WithLease(3*lease))
				eventually(t, "election", cut.has)
				other := stand(t, db.Client, db)
				token := cut.token()

				fault(way)
				stepsDown(t, 3*lease, func() bool {
					// The order matters, because the report of other must be newer than that of cut.
					had := cut.has()
					assert.False(t, had && other.has() && cut.has(), "two holders")
					return had
				})
				eventually(t, "takeover", other.has)
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
		withLonger(t, 6*lease, func(lease time.Duration) bool {
			holder := stand(t, connect(t, db, option.WithEndpoint(way.Addr())), db, spindle.WithLease(lease))
			defer holder.stop()
			eventually(t, "election", holder.has)
			token := holder.token()
			way.BlackHole()
			eventually(t, "jeopardy", func() bool { return holder.saw(spindle.Jeopardy) })
			way.Mend()
			eventually(t, "the end of jeopardy", func() bool { return holder.saw(spindle.Safe) || holder.saw(spindle.Lost) })
			return holder.token() == token && !holder.saw(spindle.Lost)
		})
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
		const lease = 15 * lease // a busy machine has a second lease for the election
		var lost atomic.Bool
		l := stand(t, connect(t, db, losingReplies("spindle-claim", &lost)), db, spindle.WithLease(lease))
		eventually(t, "a claim", lost.Load)
		start := time.Now()
		eventually(t, "election", l.has)
		assert.Less(t, time.Since(start), 2*lease, "one lease is waited out at worst")
	})
}

func TestOutcomeOfAConfirmationIsUnknown(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		var lost atomic.Bool
		l := stand(t, connect(t, db, losingReplies("spindle-confirm", &lost)), db, spindle.WithLease(unhurried))
		eventually(t, "a confirmation", lost.Load)
		eventually(t, "election, told by a heartbeat, not by the end of the lease", l.has)
		_, err := l.Apply(t.Context(), l.token(), write(1))
		assert.NoError(t, err)
	})
}

func TestHolderAndCandidateHaveDifferentLeases(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		way := newLink(t, db)
		long := stand(t, connect(t, db, option.WithEndpoint(way.Addr())), db, spindle.WithLease(6*lease))
		eventually(t, "election", long.has)
		short := stand(t, db.Client, db)
		eventually(t, "a look", func() bool { return short.saw(spindle.LeaderSeen) })
		way.Cut()
		for long.has() {
			had := short.has()
			require.False(t, had && long.has(), "the holder's lease counts")
			time.Sleep(time.Millisecond)
		}
		eventually(t, "takeover", short.has)
	})
}

func TestRowIsDeletedUnderAHolder(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		l := stand(t, db.Client, db)
		eventually(t, "election", l.has)
		token := l.token()
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete(db.Table, spanner.AllKeys())})
		require.NoError(t, err)
		eventually(t, "a later term", func() bool { return l.token() > token })
		_, err = l.Apply(t.Context(), token, write(1))
		assert.ErrorIs(t, err, spindle.ErrFenced)
	})
}

func TestTableIsDroppedUnderAHolder(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		l := stand(t, db.Client, db)
		eventually(t, "election", l.has)
		token := l.token()
		applyDDL(t, db, "DROP TABLE "+db.Table)
		stepsDown(t, lease, l.has)
		require.NoError(t, ddl.Create(t.Context(), db.Path, db.Table, db.ClientOptions()...))
		eventually(t, "a later term", func() bool { return l.token() > token })
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
		eventually(t, "election", func() bool { return holders() == 1 })
		way.Cut()
		stepsDown(t, lease, func() bool { return holders() > 0 })
		time.Sleep(2 * lease) // the outage itself
		require.Zero(t, holders())
		way.Mend()
		eventually(t, "one holder again", func() bool { return holders() == 1 })
	})
}

func TestFence(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		ctx := t.Context()
		l := stand(t, db.Client, db, spindle.WithLease(20*lease)) // it is to be released, not to expire
		eventually(t, "election", l.has)
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
		made := []*spanner.Mutation{spanner.Insert("register", []string{"id", "value"}, []any{7, 1})}
		_, err = l.Apply(ctx, token, made) // as the next leader would do
		require.NoError(t, err)
		_, err = l.Apply(ctx, token, made)
		assert.Equal(t, codes.AlreadyExists, spanner.ErrCode(err))
		assert.NotErrorIs(t, err, spindle.ErrFenced)
		for name, err := range map[string]error{
			"Apply": func() error { _, err := l.Apply(ctx, token, missing); return err }(), "ReadWriteTransaction": inTransaction(missing), "fn": refusing(),
		} {
			assert.Equal(t, codes.NotFound, spanner.ErrCode(err), name)
			assert.NotErrorIs(t, err, spindle.ErrFenced, "a row of the caller's own was missing: "+name)
		}

		require.NoError(t, l.stop())
		for _, ms := range [][]*spanner.Mutation{write(4), made, missing} { // whatever else is wrong with the commit
			_, err = l.Apply(ctx, token, ms)
			assert.ErrorIs(t, err, spindle.ErrFenced)
			_, err = l.Apply(ctx, token, ms, spanner.ApplyAtLeastOnce())
			assert.ErrorIs(t, err, spindle.ErrFenced)
			assert.ErrorIs(t, inTransaction(ms), spindle.ErrFenced)
		}
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
		eventually(t, "election", l.has)
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
		eventually(t, "election", l.has)
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
		eventually(t, "the cause, not that Spanner aborted it", func() bool {
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
		eventually(t, "election", well.has)
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
		l := stand(t, db.Client, db, spindle.WithLease(unhurried))
		eventually(t, "election", l.has)
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
		next := stand(t, db.Client, db, spindle.WithLease(unhurried))
		eventually(t, "the next election", next.has)
		assert.ErrorIs(t, set(token, "4"), spindle.ErrFenced, "superseded")
		assert.EqualValues(t, 2, register(t, db), "nothing of a refused transaction was written")
		assert.NoError(t, set(next.token(), "5"))

		wrong := spindle.New(db.Client, "register; DROP TABLE register", "mylock")
		assert.Equal(t, spanner.Statement{}, wrong.FenceStatement(dialect, next.token()), "a name that is none is in no SQL")
	})
}

func TestATableWithoutCommitTimestampsIsReported(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t)
	applyDDL(t, db, "DROP TABLE "+db.Table)
	applyDDL(t, db, "CREATE TABLE "+db.Table+" (name STRING(MAX) NOT NULL, heartbeat TIMESTAMP, token TIMESTAMP, writer STRING(MAX)) PRIMARY KEY (name)")
	var log fleet.Log
	l := stand(t, db.Client, db, spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	eventually(t, "a hint", func() bool { return strings.Contains(log.String(), "ddl.Verify says what is wrong") })
	time.Sleep(2 * lease) // it keeps trying, and does not report the problem again
	assert.False(t, l.has())
	assert.Equal(t, 1, strings.Count(log.String(), "ddl.Verify"))
	applyDDL(t, db, "DROP TABLE "+db.Table)
	require.NoError(t, ddl.Create(t.Context(), db.Path, db.Table, db.ClientOptions()...))
	eventually(t, "election, once it is mended", l.has)
}

// If the client is closed while a lock uses it, the error says so, and does not blame the table.
func TestAClientThatWasClosedEarlyIsSaidToBe(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t)
	client := connect(t, db)
	var log fleet.Log
	l := stand(t, client, db, spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	eventually(t, "election", l.has)
	client.Close()
	_, err := l.Leader(t.Context())
	assert.ErrorContains(t, err, "the Spanner client was closed")
	eventually(t, "it to be logged too", func() bool {
		return strings.Contains(log.String(), "can't compete") && strings.Contains(log.String(), "the Spanner client was closed")
	})
	assert.NotContains(t, log.String(), "it is a lock table")
}

// A database that does not exist is not mistaken for a table that does not exist.
func TestAPathOfNoDatabaseIsSaidToBeWrong(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t)
	instance, _, _ := strings.Cut(db.Path, "/databases/")
	for _, path := range []string{instance + "/databases/other", "projects/p/instances/i/databases/d"} {
		client, err := spanner.NewClientWithConfig(t.Context(), path, spanner.ClientConfig{DisableNativeMetrics: true}, db.ClientOptions()...)
		require.NoError(t, err)
		defer client.Close()
		_, err = spindle.New(client, db.Table, "mylock").Leader(t.Context())
		assert.ErrorContains(t, err, "check the database path that was given to the Spanner client")
		assert.NotContains(t, err.Error(), "table exist")
	}
}

// open returns a client with one connection, through way. The ctx that it was opened with has ended.
func open(t *testing.T, db *spindletest.Database, way *network.Link, opts ...option.ClientOption) *spanner.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client, err := spindle.Open(ctx, db.Path, slices.Concat(db.ClientOptions(), opts, []option.ClientOption{option.WithEndpoint(way.Addr()), option.WithGRPCConnectionPool(1)})...)
	cancel()
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func TestOpenNamesTheDatabaseThatItRefuses(t *testing.T) {
	_, err := spindle.Open(t.Context(), "mydb")
	assert.ErrorContains(t, err, `spindle: open "mydb": `)
	_, err = spindle.Open(t.Context(), "")
	assert.ErrorContains(t, err, "the path of the database is empty")
}

// Connections that a NAT has forgotten do not keep a lock without a holder while new connections work. They are
// replaced 10 s after the last response, which is the minimum that gRPC allows, plus the time in which a ping may be
// answered.
func TestForgottenConnectionsAreReplaced(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t)
	way := newLink(t, db)
	l := stand(t, open(t, db, way), db)
	eventually(t, "election", l.has)
	way.Forget()
	stepsDown(t, lease, l.has)
	eventually(t, "a holder again, over a new connection", l.has)
}

// However long Spanner was unavailable, a client tries to connect every third of its lease, so a lock has a holder soon
// after the outage.
func TestALongOutageDoesNotDelayTheNextConnection(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t)
	way := newLink(t, db)
	dialed := make(chan time.Time, 100)
	l := stand(t, open(t, db, way, append(spindle.ClientOptions(lease), option.WithGRPCDialOption(grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		dialed <- time.Now()
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})))...), db)
	eventually(t, "election", l.has)
	<-dialed
	way.Cut()
	last := time.Now()
	var pauses []time.Duration
	for range 14 {
		select {
		case at := <-dialed:
			require.Less(t, at.Sub(last), 10*lease, "between two attempts to connect; gRPC's own pauses become longer")
			pauses, last = append(pauses, at.Sub(last)), at
		case <-time.After(patience):
			require.FailNow(t, "no attempt to connect")
		}
	}
	slices.Sort(pauses)
	require.Less(t, pauses[len(pauses)/2], 2*lease, "a busy machine delays some attempts, but not most of them")
	way.Mend()
	eventually(t, "a holder again", l.has)
}

// A reply to a commit that has neither an error nor a timestamp does not tell whether the commit was applied. Spanner
// can send such a reply if it expects a second request with the token of the reply.

// answering replaces, while it is on, the replies to commits. If it is told to apply the commits, they take effect all the
// same.
type answering struct {
	on      atomic.Bool
	applies bool
}

func (a *answering) option() option.ClientOption {
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			r, ok := req.(*sppb.CommitRequest)
			if !ok || !a.on.Load() {
				return invoke(ctx, method, req, reply, cc, opts...)
			}
			if a.applies && len(r.GetMutations()) > 0 {
				if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
					return err
				}
			}
			res := reply.(*sppb.CommitResponse)
			proto.Reset(res)
			res.MultiplexedSessionRetry = &sppb.CommitResponse_PrecommitToken{
				PrecommitToken: &sppb.MultiplexedSessionPrecommitToken{PrecommitToken: []byte("again"), SeqNum: 1}}
			return nil
		}))
}

func TestNoStepTakesAReplyWithoutATimestampForSuccess(t *testing.T) {
	onTheEmulator(t)
	for _, a := range []*answering{{}, {applies: true}} {
		ctx, db := t.Context(), spindletest.New(t)
		tab := table.Table{Store: table.Spanner{DB: connect(t, db, a.option()), Table: db.Table}}
		unclear := func(step string, f func() error) {
			t.Helper()
			a.on.Store(true)
			defer a.on.Store(false)
			err := f()
			require.Error(t, err, step)
			assert.NotErrorIs(t, err, table.ErrSuperseded, step)
			assert.NotErrorIs(t, err, table.ErrChanged, step)
		}
		seen, err := tab.Observe(ctx, "x")
		require.NoError(t, err)
		unclear("claim", func() error {
			token, err := tab.Claim(ctx, "me", seen...)
			assert.Zero(t, token)
			return err
		})
		seen, err = tab.Observe(ctx, "x")
		require.NoError(t, err)
		token, err := tab.Claim(ctx, "me", seen...)
		require.NoError(t, err)
		confirm := func() error { return tab.Confirm(ctx, token, table.LeaseRecord{Lease: time.Minute}, "x") }
		unclear("confirm", confirm)
		if !a.applies {
			require.ErrorIs(t, tab.Heartbeat(ctx, token, "x"), table.ErrSuperseded)
			require.NoError(t, confirm())
		}
		unclear("heartbeat", func() error { return tab.Heartbeat(ctx, token, "x") })
		unclear("release", func() error { return tab.Release(ctx, token, "x") })
		valid, err := tab.Valid(ctx, token, "x")
		require.NoError(t, err)
		assert.Equal(t, !a.applies, valid)
	}
}

// BenchmarkHeartbeatsBesideReads measures how long heartbeats take while a thousand goroutines of the application read, through the
// same client or through another one. Like Spanner, the server has 100 calls of a connection in progress at a time. A read takes a
// quarter of a second.
func BenchmarkHeartbeatsBesideReads(b *testing.B) {
	for _, shared := range []bool{true, false} {
		b.Run(fmt.Sprint("shared=", shared), func(b *testing.B) {
			db := spindletest.New(b)
			addr, stop, err := network.NewProxy(db.Host, 100, func(r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "Read") {
					time.Sleep(250 * time.Millisecond)
				}
			})
			require.NoError(b, err)
			b.Cleanup(stop)
			server := option.WithEndpoint(addr)
			var mu sync.Mutex
			var took []time.Duration
			timed := option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				start := time.Now()
				err := invoke(ctx, method, req, reply, cc, opts...)
				if strings.HasSuffix(method, "/Commit") {
					mu.Lock()
					defer mu.Unlock()
					took = append(took, time.Since(start))
				}
				return err
			}))
			locks := connect(b, db, append(spindle.ClientOptions(lease), server, timed)...)
			application := locks
			if !shared {
				application = connect(b, db, server)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var all sync.WaitGroup
			var running []*spindle.Lock
			for i := range 20 {
				l := spindle.New(locks, db.Table, fmt.Sprint("lock", i), spindle.WithLease(5*lease), quiet)
				running = append(running, l)
				all.Go(func() { _ = l.RunAndWait(ctx) })
			}
			require.Eventually(b, func() bool { return held(running) }, time.Minute, time.Millisecond)
			for range 1000 {
				all.Go(func() {
					for ctx.Err() == nil {
						_, _ = application.Single().ReadRow(ctx, db.Table, spanner.Key{"a row"}, []string{"name"})
					}
				})
			}
			time.Sleep(3 * lease)
			mu.Lock()
			took = nil
			mu.Unlock()
			for b.Loop() {
				time.Sleep(lease)
			}
			mu.Lock()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "ms/heartbeat")
			b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms/heartbeat")
			b.ReportMetric(0, "ns/op")
			mu.Unlock()
			cancel()
			all.Wait()
		})
	}
}
