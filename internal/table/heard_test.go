package table_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/table"
)

// busy is a client of a Spanner that creates a session, and answers everything else with err.
func busy(t *testing.T, err error, opts ...grpc.DialOption) table.Table {
	return breaksOff(t, nil, err, opts...)
}

// breaksOff is like busy, but a read gets some rows before the error.
func breaksOff(t *testing.T, first *sppb.PartialResultSet, err error, opts ...grpc.DialOption) table.Table {
	opts = append(opts,
		grpc.WithChainUnaryInterceptor(func(_ context.Context, method string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			if session, ok := reply.(*sppb.Session); ok {
				session.Name, session.Multiplexed = "projects/p/instances/i/databases/d/sessions/s", true
				return nil
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			return &failing{ctx: ctx, first: first, err: err}, nil
		}))
	options := append(dialing(opts...), option.WithEndpoint("passthrough:///127.0.0.1:1"), option.WithoutAuthentication(), option.WithGRPCConnectionPool(1))
	client, failed := spanner.NewClientWithConfig(context.Background(), "projects/p/instances/i/databases/d", spanner.ClientConfig{DisableNativeMetrics: true}, options...)
	require.NoError(t, failed)
	t.Cleanup(client.Close)
	return table.Table{Store: table.Spanner{DB: client, Table: "locktable"}}
}

// exhausted returns an answer that asks the client to repeat its request after a while.
func exhausted(t *testing.T, while time.Duration) error {
	answer, err := status.New(codes.ResourceExhausted, "the quota is used up").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(while)})
	require.NoError(t, err)
	return answer.Err()
}

type failing struct {
	grpc.ClientStream
	ctx   context.Context
	first *sppb.PartialResultSet // what is received before err, if it is not nil
	err   error
}

func (f *failing) Context() context.Context     { return f.ctx }
func (f *failing) Header() (metadata.MD, error) { return nil, nil }
func (f *failing) Trailer() metadata.MD         { return nil }
func (f *failing) SendMsg(any) error            { return nil }
func (f *failing) CloseSend() error             { return nil }

func (f *failing) RecvMsg(m any) error {
	if f.first == nil {
		return f.err
	}
	proto.Merge(m.(proto.Message), f.first)
	f.first = nil
	return nil
}

// metadataOfRows describes the columns of rows that are read.
func metadataOfRows() *sppb.ResultSetMetadata {
	of := &sppb.StructType{}
	for _, c := range []struct {
		name string
		code sppb.TypeCode
	}{
		{table.ColName, sppb.TypeCode_STRING}, {table.ColHeartbeat, sppb.TypeCode_TIMESTAMP},
		{table.ColToken, sppb.TypeCode_TIMESTAMP}, {table.ColWriter, sppb.TypeCode_STRING},
	} {
		of.Fields = append(of.Fields, &sppb.StructType_Field{Name: c.name, Type: &sppb.Type{Code: c.code}})
	}
	return &sppb.ResultSetMetadata{RowType: of}
}

func listOf(t *testing.T, values ...any) *structpb.ListValue {
	list, err := structpb.NewList(values)
	require.NoError(t, err)
	return list
}

// The client repeats a request that Spanner is too busy for until the request's time is up. The error then still says
// what was wrong. A client without the interceptors only knows that the time was up.
func TestARequestThatTimesOutNamesTheLastAnswer(t *testing.T) {
	later := exhausted(t, 20*time.Millisecond)
	for name, answer := range map[string]error{"exhausted": later, "unavailable": status.Error(codes.Unavailable, "the quota is used up")} {
		for step, request := range map[string]func(context.Context, table.Table) error{
			"commit": func(ctx context.Context, tab table.Table) error { return tab.Heartbeat(ctx, 1, "lock") },
			"read":   func(ctx context.Context, tab table.Table) error { _, err := tab.Observe(ctx, "lock"); return err },
			"transaction": func(ctx context.Context, tab table.Table) error {
				return tab.Confirm(ctx, 1, table.LeaseRecord{Lease: time.Second}, "lock")
			},
		} {
			t.Run(step+" "+name, func(t *testing.T) {
				send := func(tab table.Table) error {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					return request(ctx, tab)
				}
				told := send(busy(t, answer, table.DialOptions()...))
				assert.ErrorContains(t, told, "the quota is used up")
				assert.Equal(t, status.Code(answer), spanner.ErrCode(told), "%v", told)
				blind := send(busy(t, answer))
				if spanner.ErrCode(blind) == codes.DeadlineExceeded {
					assert.False(t, strings.Contains(blind.Error(), "quota"), "then the interceptors are not needed: %v", blind)
				}
			})
		}
	}
}

// Callers that share a request can time out at different times. The error of each caller names Spanner's last answer, as if the
// caller had sent a request of its own. A caller that gives up before its time is up only gets the error of its ctx.
func TestASharedRequestThatTimesOutNamesTheLastAnswer(t *testing.T) {
	tab := busy(t, exhausted(t, 20*time.Millisecond), table.DialOptions()...)
	for step, request := range map[string]func(context.Context, table.Table, string) error{
		"commit": func(ctx context.Context, tab table.Table, name string) error { return tab.Heartbeat(ctx, 1, name) },
		"read": func(ctx context.Context, tab table.Table, name string) error {
			_, err := tab.Observe(ctx, name)
			return err
		},
	} {
		for _, callers := range []int{1, 3} {
			shared := table.Table{Store: new(batch.Requests).Store(tab.Store, time.Second)}
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(300+100*i)*time.Millisecond)
					defer cancel()
					err := request(ctx, shared, fmt.Sprint("lock ", i))
					assert.ErrorContains(t, err, "the quota is used up", "%s, caller %d of %d", step, i+1, callers)
					assert.Equal(t, codes.ResourceExhausted, spanner.ErrCode(err), "%s, caller %d of %d: %v", step, i+1, callers, err)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				})
			}
			all.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			assert.Equal(t, context.Canceled, request(ctx, shared, "lock"), step)
		}
	}
}

// Of several answers, the last one counts, because it says what is wrong now.
func TestARequestThatTimesOutNamesNoEarlierAnswer(t *testing.T) {
	var asked atomic.Int32
	restarts := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if err != nil && asked.Add(1) == 1 {
			return status.Error(codes.Unavailable, "a server restarts")
		}
		return err
	}
	tab := busy(t, exhausted(t, 20*time.Millisecond), append(table.DialOptions(), grpc.WithChainUnaryInterceptor(restarts))...)
	var err error
	for d := 200 * time.Millisecond; asked.Load() < 2; d *= 2 { // a busy machine may need longer
		asked.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), d)
		err = tab.Heartbeat(ctx, 1, "lock")
		cancel()
	}
	assert.Equal(t, codes.ResourceExhausted, spanner.ErrCode(err), "%v", err)
	assert.NotContains(t, err.Error(), "a server restarts")
}

// A read whose answer breaks off fails, whatever rows have arrived. The rows that have not arrived would otherwise count as missing,
// and a missing row means that a lock is free or that a member has gone.
func TestAReadThatBreaksOffIsAnError(t *testing.T) {
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	row := listOf(t, "a", at.Format(time.RFC3339), at.Format(time.RFC3339), "me")
	first := &sppb.PartialResultSet{Metadata: metadataOfRows(), Values: row.Values, ResumeToken: []byte("all rows so far count")}
	for name, keys := range map[string]table.Keys{"keys": {Names: []string{"a", "b"}}, "a list": {All: true, Prefix: "a"}, "a list of held locks": {All: true, Busy: true}} {
		for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled, codes.PermissionDenied} {
			tab := breaksOff(t, first, status.Error(code, "it broke off"))
			first.Metadata.Transaction = &sppb.Transaction{ReadTimestamp: timestamppb.New(at)}
			for _, bound := range []table.Bound{table.Present, table.Strong} {
				_, _, err := tab.Store.Read(t.Context(), "observe", bound, keys)
				assert.ErrorContains(t, err, "it broke off", "%s: %v", name, code)
			}
			first.Metadata.Transaction = &sppb.Transaction{Id: []byte("t")}
			read := false
			_, _ = tab.Store.Transact(t.Context(), "claim", func(ctx context.Context, r table.Reader) ([]table.Write, error) {
				read = true
				_, err := r.Read(ctx, keys)
				assert.ErrorContains(t, err, "it broke off", "%s in a transaction: %v", name, code)
				return nil, err
			})
			assert.True(t, read)
		}
	}
}

// answers is a client of a Spanner that creates a session, and gives each commit the next answer, and the last one again.
func answers(t *testing.T, all *[]error) table.Table {
	return busy(t, nil, append(table.DialOptions(), grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		switch reply := reply.(type) {
		case *sppb.Transaction:
			reply.Id = []byte("t")
			return nil
		case *sppb.CommitResponse:
			answer := (*all)[0]
			if len(*all) > 1 {
				*all = (*all)[1:]
			}
			return answer
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}))...)
}

// What the last answer means decides, whatever outages came before it: each of Spanner's answers to a commit is the error that the
// protocol acts on, and one without a timestamp is no success.
func TestTheLastAnswerToACommitDecides(t *testing.T) {
	said := []error{table.ErrMissing, table.ErrNotFound, table.ErrExists, table.ErrAborted, table.ErrNoTimestamp}
	later := exhausted(t, time.Millisecond)
	var next []error
	tab := answers(t, &next)
	for _, c := range []struct {
		answer        error
		commit, trans error
	}{
		{status.Error(codes.NotFound, "Row [l_1763645616123456] in table locktable is missing. Row cannot be updated."), table.ErrMissing, table.ErrAborted},
		{status.Error(codes.NotFound, "Table not found: locktable"), table.ErrMissing, nil},
		{status.Error(codes.NotFound, "Database not found: projects/p/instances/i/databases/d"), table.ErrMissing, nil},
		{status.Error(codes.NotFound, "something"), table.ErrNotFound, nil},
		{status.Error(codes.AlreadyExists, "Row [l] in table locktable already exists"), table.ErrExists, table.ErrAborted},
		{status.Error(codes.PermissionDenied, "no"), nil, nil},
		{status.Error(codes.FailedPrecondition, "the value is longer than the column"), nil, nil},
		{nil, table.ErrNoTimestamp, table.ErrNoTimestamp},
	} {
		for _, before := range [][]error{{}, {later}} {
			if len(before) > 0 && c.commit != table.ErrExists {
				continue // one is enough, because the client waits before it repeats a request
			}
			next = append(slices.Clone(before), c.answer)
			err := tab.Store.Commit(t.Context(), "heartbeat", []table.Write{{Kind: table.Update, Name: "l"}})
			next = append(slices.Clone(before), c.answer)
			_, failed := tab.Store.Transact(t.Context(), "claim", func(context.Context, table.Reader) ([]table.Write, error) {
				return []table.Write{{Kind: table.Update, Name: "l"}}, nil
			})
			for _, is := range said {
				assert.Equal(t, is == c.commit, errors.Is(err, is), "%v after %d: %v", c.answer, len(before), err)
				assert.Equal(t, is == c.trans, errors.Is(failed, is), "a transaction, %v after %d: %v", c.answer, len(before), failed)
			}
			for _, err := range []error{err, failed} {
				require.Error(t, err)
				assert.Equal(t, status.Code(c.answer) != codes.OK, spanner.ErrCode(err) == status.Code(c.answer), "%v: %v", c.answer, err)
				assert.NotContains(t, err.Error(), "the quota is used up")
			}
		}
	}
}
