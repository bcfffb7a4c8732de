package fence_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

func TestMain(m *testing.M) { testcheck.Main(m) }

// server implements as much of Spanner as a fenced write needs. It knows the keys of rows, whatever their table, which
// commits update and reads find. Only the test inserts and deletes rows.
type server struct {
	sppb.UnimplementedSpannerServer

	commit func(attempt int) error // determines the reply to a commit; if nil, the reply depends on whether the rows exist
	read   func(table string) error
	silent bool // replies to commits have no timestamp

	mu      sync.Mutex
	rows    map[string]bool
	commits []*sppb.CommitRequest
	begins  []*sppb.TransactionOptions // the options of read-write transactions
	reads   []*sppb.ReadRequest
	longest time.Duration // the longest time for which a caller waits for a read
}

// serve returns a server with these rows, and a client that is connected to it.
func serve(t *testing.T, rows ...string) (*server, *spanner.Client) {
	s := &server{rows: map[string]bool{}}
	for _, key := range rows {
		s.rows[key] = true
	}
	return s, s.client(t, spanner.ClientConfig{})
}

// client connects another client, with its own settings.
func (s *server) client(t *testing.T, config spanner.ClientConfig, opts ...option.ClientOption) *spanner.Client {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	sppb.RegisterSpannerServer(g, s)
	served := make(chan struct{})
	go func() { defer close(served); _ = g.Serve(ln) }()
	t.Cleanup(func() { g.Stop(); <-served })
	config.DisableNativeMetrics = true
	db, err := spanner.NewClientWithConfig(context.Background(), "projects/p/instances/i/databases/d", config, append(opts,
		option.WithEndpoint("passthrough:///"+ln.Addr().String()), option.WithoutAuthentication(), option.WithGRPCConnectionPool(1),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))...)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// remove deletes a row, as the claim of another candidate would.
func (s *server) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, key)
}

func (s *server) CreateSession(_ context.Context, req *sppb.CreateSessionRequest) (*sppb.Session, error) {
	return &sppb.Session{Name: req.GetDatabase() + "/sessions/s", Multiplexed: req.GetSession().GetMultiplexed()}, nil
}

func (s *server) BeginTransaction(_ context.Context, req *sppb.BeginTransactionRequest) (*sppb.Transaction, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begin(req.GetOptions()), nil
}

func (s *server) begin(o *sppb.TransactionOptions) *sppb.Transaction {
	if o.GetReadWrite() == nil {
		return &sppb.Transaction{ReadTimestamp: timestamppb.Now()}
	}
	s.begins = append(s.begins, o)
	return &sppb.Transaction{Id: fmt.Appendf(nil, "transaction %d", len(s.begins))}
}

func (s *server) Commit(_ context.Context, req *sppb.CommitRequest) (*sppb.CommitResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits = append(s.commits, req)
	if s.commit != nil {
		if err := s.commit(len(s.commits)); err != nil {
			return nil, err
		}
	}
	for _, m := range req.GetMutations() {
		if key := m.GetUpdate().GetValues()[0].GetValues()[0].GetStringValue(); !s.rows[key] {
			return nil, status.Errorf(codes.NotFound, "Row [%s] in table %s is missing. Row cannot be updated.", key, m.GetUpdate().GetTable())
		}
	}
	if s.silent {
		return &sppb.CommitResponse{}, nil
	}
	return &sppb.CommitResponse{CommitTimestamp: timestamppb.Now()}, nil
}

func (s *server) Rollback(context.Context, *sppb.RollbackRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (s *server) StreamingRead(req *sppb.ReadRequest, stream sppb.Spanner_StreamingReadServer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, req)
	if until, limited := stream.Context().Deadline(); limited {
		s.longest = max(s.longest, time.Until(until))
	} else {
		s.longest = time.Hour
	}
	if s.read != nil {
		if err := s.read(req.GetTable()); err != nil {
			return err
		}
	}
	meta := &sppb.ResultSetMetadata{RowType: &sppb.StructType{}}
	if o := req.GetTransaction().GetBegin(); o != nil {
		meta.Transaction = s.begin(o)
	} else if o := req.GetTransaction().GetSingleUse(); o != nil {
		meta.Transaction = s.begin(o)
	}
	for _, column := range req.GetColumns() {
		code := sppb.TypeCode_STRING
		if column == "heartbeat" || column == "token" {
			code = sppb.TypeCode_TIMESTAMP
		}
		meta.RowType.Fields = append(meta.RowType.Fields, &sppb.StructType_Field{Name: column, Type: &sppb.Type{Code: code}})
	}
	answer := &sppb.PartialResultSet{Metadata: meta, Last: true}
	for _, key := range req.GetKeySet().GetKeys() {
		if name := key.GetValues()[0]; s.rows[name.GetStringValue()] {
			answer.Values = append(answer.Values, name)
			for range req.GetColumns()[1:] {
				answer.Values = append(answer.Values, structpb.NewNullValue())
			}
		}
	}
	return stream.Send(answer)
}

// aborted is an error after which the client immediately tries the transaction again.
func aborted() error {
	s, err := status.New(codes.Aborted, "another transaction was first").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Microsecond)})
	if err != nil {
		panic(err)
	}
	return s.Err()
}
