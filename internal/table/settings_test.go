package table_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/spindletest"
)

// wire sees every message that a client sends.
type wire struct {
	mu   sync.Mutex
	sent []any
}

func (w *wire) see(m any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, m)
}

// taken returns what was sent since the last call.
func (w *wire) taken() []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent
	w.sent = nil
	return sent
}

// dialing returns the options of a client that dials with opts.
func dialing(opts ...grpc.DialOption) (all []option.ClientOption) {
	for _, o := range opts {
		all = append(all, option.WithGRPCDialOption(o))
	}
	return all
}

func (w *wire) dial() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				w.see(req)
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
		grpc.WithChainStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := streamer(ctx, desc, cc, method, opts...)
				return &stream{s, w}, err
			}),
	}
}

type stream struct {
	grpc.ClientStream
	wire *wire
}

func (s *stream) SendMsg(m any) error {
	s.wire.see(m)
	return s.ClientStream.SendMsg(m)
}

func inBothDialects(t *testing.T, f func(t *testing.T, db *spindletest.Database)) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Run("GoogleSQL", func(t *testing.T) { f(t, spindletest.New(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { f(t, spindletest.New(t, spindletest.PostgreSQL())) })
}

func connect(t *testing.T, db *spindletest.Database, config spanner.ClientConfig, w *wire) table.Table {
	t.Helper()
	config.DisableNativeMetrics = true
	client, err := spanner.NewClientWithConfig(context.Background(), db.Path, config, append(db.ClientOptions(), dialing(w.dial()...)...)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return table.Table{Store: table.Spanner{DB: client, Table: db.Table}}
}

// cycle runs each step of the protocol on two locks, so that every read has to find more than one row.
func cycle(t *testing.T, tab table.Table) {
	t.Helper()
	ctx := t.Context()
	for range 2 { // first with missing rows, then with released ones
		seen, err := tab.LookAtLeases(ctx, time.Now(), "a", "b")
		require.NoError(t, err)
		token, err := tab.Claim(ctx, "me", seen...)
		require.NoError(t, err)
		require.NoError(t, tab.Confirm(ctx, token, table.LeaseRecord{Lease: time.Second}, "a", "b"))
		require.NoError(t, tab.Heartbeat(ctx, token, "a", "b"))
		valid, err := tab.Valid(ctx, token, "a", "b")
		require.NoError(t, err)
		require.True(t, valid)
		held, err := tab.Observe(ctx, "a", "b")
		require.NoError(t, err)
		require.True(t, held[0].Confirmed() && held[1].Confirmed())
		require.NoError(t, tab.Release(ctx, token, "a", "b"))
		seen, err = tab.Observe(ctx, "a", "b")
		require.NoError(t, err)
		token, err = tab.Claim(ctx, "me", seen...)
		require.NoError(t, err)
		require.NoError(t, tab.Withdraw(ctx, token, "a", "b"))
	}
}

var aReplica = &sppb.DirectedReadOptions{Replicas: &sppb.DirectedReadOptions_IncludeReplicas_{
	IncludeReplicas: &sppb.DirectedReadOptions_IncludeReplicas{
		ReplicaSelections: []*sppb.DirectedReadOptions_ReplicaSelection{{Location: "europe-west1"}}, AutoFailoverDisabled: true},
}}

// The application configures its client for its own load. None of those settings may delay a heartbeat, weaken a
// transaction or truncate a read.
func TestTheClientsSettingsDoNotReachTheLock(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		later := 400 * time.Millisecond
		batch := spanner.CommitOptions{MaxCommitDelay: &later, ReturnCommitStats: true}
		for name, config := range map[string]spanner.ClientConfig{
			"reads": {ReadOptions: spanner.ReadOptions{Limit: 1, Index: "other", Priority: sppb.RequestOptions_PRIORITY_LOW,
				RequestTag: "other", OrderBy: sppb.ReadRequest_ORDER_BY_NO_ORDER, LockHint: sppb.ReadRequest_LOCK_HINT_EXCLUSIVE}},
			"directed reads":           {DirectedReadOptions: aReplica},
			"directed reads of either": {ReadOptions: spanner.ReadOptions{DirectedReadOptions: aReplica}},
			"commits": {ApplyOptions: []spanner.ApplyOption{spanner.IsolationLevel(sppb.TransactionOptions_REPEATABLE_READ),
				spanner.ApplyCommitOptions(batch), spanner.Priority(sppb.RequestOptions_PRIORITY_LOW), spanner.TransactionTag("other")}},
			"transactions": {TransactionOptions: spanner.TransactionOptions{IsolationLevel: sppb.TransactionOptions_REPEATABLE_READ,
				ReadLockMode: sppb.TransactionOptions_ReadWrite_PESSIMISTIC, CommitOptions: batch,
				CommitPriority: sppb.RequestOptions_PRIORITY_LOW, TransactionTag: "other",
				BeginTransactionOption: spanner.ExplicitBeginTransaction}},
		} {
			t.Run(name, func(t *testing.T) {
				w := &wire{}
				cycle(t, connect(t, db, config, w))
				for _, m := range w.sent {
					checkSettings(t, m, name)
				}
			})
		}
	})
}

func checkSettings(t *testing.T, m any, config string) {
	t.Helper()
	directed := config == "directed reads of either"
	serializable := func(o *sppb.TransactionOptions) {
		if o.GetReadWrite() != nil {
			assert.Equal(t, sppb.TransactionOptions_SERIALIZABLE, o.GetIsolationLevel(), "%v", m)
		}
	}
	switch m := m.(type) {
	case *sppb.CommitRequest:
		assert.Zero(t, m.GetMaxCommitDelay().AsDuration())
		assert.Equal(t, sppb.RequestOptions_PRIORITY_HIGH, m.GetRequestOptions().GetPriority())
		assert.NotEqual(t, "other", m.GetRequestOptions().GetTransactionTag())
		if o := m.GetSingleUseTransaction(); o != nil {
			serializable(o)
		}
	case *sppb.BeginTransactionRequest:
		serializable(m.GetOptions())
		assert.True(t, directed, "a transaction begins with its first read")
	case *sppb.ReadRequest:
		serializable(m.GetTransaction().GetBegin())
		if begin := m.GetTransaction().GetBegin(); begin != nil {
			assert.Equal(t, sppb.TransactionOptions_ReadWrite_OPTIMISTIC, begin.GetReadWrite().GetReadLockMode())
		}
		assert.Greater(t, m.GetLimit(), int64(1<<30))
		assert.Empty(t, m.GetIndex())
		assert.Equal(t, sppb.RequestOptions_PRIORITY_HIGH, m.GetRequestOptions().GetPriority())
		assert.NotEqual(t, "other", m.GetRequestOptions().GetRequestTag())
		assert.Equal(t, sppb.ReadRequest_ORDER_BY_PRIMARY_KEY, m.GetOrderBy())
		inTransaction := m.GetTransaction().GetSingleUse() == nil
		if inTransaction {
			assert.NotEqual(t, sppb.ReadRequest_LOCK_HINT_EXCLUSIVE, m.GetLockHint(), "a claim takes no locks before its commit")
		}
		if !directed && (inTransaction || config != "directed reads") {
			assert.Nil(t, m.GetDirectedReadOptions(), "Spanner says that a transaction with them is refused, and might refuse empty ones")
		}
	}
}
