//go:build unix

package spindle_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// A reply to a commit that has neither an error nor a timestamp does not tell whether the commit was applied. Spanner
// can send such a reply if it expects a second request with the token of the reply.

// answering replaces, while it is on, the replies to the commits with the given tag, or to all commits. If it is told
// to apply the commits, they take effect all the same.
type answering struct {
	on      atomic.Bool
	applies bool
	tag     string
	with    error // a reply without a timestamp if nil
}

func (a *answering) option() option.ClientOption {
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			r, ok := req.(*sppb.CommitRequest)
			if !ok || !a.on.Load() || a.tag != "" && a.tag != r.GetRequestOptions().GetTransactionTag() {
				return invoke(ctx, method, req, reply, cc, opts...)
			}
			if a.applies && len(r.GetMutations()) > 0 {
				if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
					return err
				}
			}
			if a.with != nil {
				return a.with
			}
			res := reply.(*sppb.CommitResponse)
			proto.Reset(res)
			res.MultiplexedSessionRetry = &sppb.CommitResponse_PrecommitToken{
				PrecommitToken: &sppb.MultiplexedSessionPrecommitToken{PrecommitToken: []byte("again"), SeqNum: 1}}
			return nil
		}))
}

// eachReply runs a test twice, with a commit that was applied and with one that was not.
func eachReply(t *testing.T, f func(t *testing.T, db *spindletest.Database, a *answering)) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		f(t, db, &answering{})
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete(db.Table, spanner.AllKeys()), spanner.Delete("register", spanner.AllKeys())})
		require.NoError(t, err)
		f(t, db, &answering{applies: true})
	})
}

func TestNoStepTakesAReplyWithoutATimestampForSuccess(t *testing.T) {
	eachReply(t, func(t *testing.T, db *spindletest.Database, a *answering) {
		ctx := t.Context()
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
	})
}

func TestAFencedWriteIsNoSuccessWithoutATimestamp(t *testing.T) {
	eachReply(t, func(t *testing.T, db *spindletest.Database, a *answering) {
		ctx := t.Context()
		l := stand(t, connect(t, db, a.option()), db, spindle.WithLease(time.Minute))
		eventually(t, 10*time.Second, "election", l.has)
		a.on.Store(true)
		for name, apply := range map[string]func() (time.Time, error){
			"Apply":               func() (time.Time, error) { return l.Apply(ctx, l.token(), write(1)) },
			"Apply at least once": func() (time.Time, error) { return l.Apply(ctx, l.token(), write(1), spanner.ApplyAtLeastOnce()) },
			"ReadWriteTransaction": func() (time.Time, error) {
				return l.ReadWriteTransaction(ctx, l.token(), func(_ context.Context, txn *spanner.ReadWriteTransaction) error { return txn.BufferWrite(write(1)) })
			},
		} {
			at, err := apply()
			assert.Error(t, err, name)
			assert.Zero(t, at, name)
			assert.NotErrorIs(t, err, spindle.ErrFenced, name)
		}
		a.on.Store(false)
		_, err := l.Apply(ctx, l.token(), write(2))
		assert.NoError(t, err)
		require.NoError(t, l.stop())
	})
}

func TestNobodyHoldsByRepliesWithoutATimestamp(t *testing.T) {
	eachReply(t, func(t *testing.T, db *spindletest.Database, a *answering) {
		a.on.Store(true)
		l := stand(t, connect(t, db, a.option()), db)
		m := lock.New(connect(t, db, a.option()), db.Table, "mutex", spindle.WithLease(lease))
		ctx, cancel := context.WithTimeout(t.Context(), 2*lease)
		defer cancel()
		require.Error(t, m.Lock(ctx))
		assert.False(t, l.saw(spindle.Elected), "it had two leases of time")
		a.on.Store(false)
		eventually(t, 10*time.Second, "election, once the replies are normal", l.has)
		token := l.token()

		a.on.Store(true)
		eventually(t, 2*lease, "stepping down: no heartbeat was acknowledged", func() bool { return !l.has() })
		a.on.Store(false)
		eventually(t, 10*time.Second, "a later term", func() bool { return l.token() > token })
		_ = l.stop() // on a slow machine, the term may be over
	})
}

func TestARepliedReleaseWithoutATimestampIsNoRelease(t *testing.T) {
	eachReply(t, func(t *testing.T, db *spindletest.Database, a *answering) {
		l := stand(t, connect(t, db, a.option()), db, spindle.WithLease(3*lease))
		eventually(t, 10*time.Second, "election", l.has)
		a.tag = "spindle-release"
		a.on.Store(true)
		if err := l.stop(); a.applies {
			assert.NoError(t, err, "a second attempt finds the lock released")
		} else {
			assert.Error(t, err, "it is left to expire")
		}
	})
}

// A session that is lost for a while does not mean that the lock is lost. A missing lease row does, whatever the error
// says.
func TestAHeartbeatThatIsToldOfSomethingNotFound(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		for _, message := range []string{"Session was concurrently deleted", "Session not found: s", "not found"} {
			a := &answering{tag: "spindle-heartbeat", with: status.Error(codes.NotFound, message)}
			l := stand(t, connect(t, db, a.option()), db, spindle.WithLease(3*lease))
			eventually(t, 10*time.Second, "election", l.has)
			token := l.token()
			a.on.Store(true)
			eventually(t, 3*lease, "jeopardy", func() bool { return l.saw(spindle.Jeopardy) })
			assert.Equal(t, token, l.token(), message)
			a.on.Store(false)
			eventually(t, 3*lease, "safe", func() bool { return l.saw(spindle.Safe) })
			assert.Equal(t, token, l.token(), message)

			a.on.Store(true)
			_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete(db.Table, spanner.Key{table.LeaseKey("mylock", table.Token(token))})})
			require.NoError(t, err)
			eventually(t, 2*lease, "stepping down before the lease is over", func() bool { return l.token() != token })
			a.on.Store(false)
			require.NoError(t, l.stop(), message)
		}
	})
}
