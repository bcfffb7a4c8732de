package table_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spindle-lock/spindle/internal/table"
)

// A read asks for exactly the rows that its keys select, both ends of a range included, in the snapshot that its bound selects. If
// it left a row out, a holder or a waiter would seem to be gone. A snapshot of the last commit instead of the present would not
// show that a leader is silent.
func TestEachReadAsksForItsRowsInItsSnapshot(t *testing.T) {
	key := func(parts ...any) *structpb.ListValue { return listOf(t, parts...) }
	closed := func(from, to *structpb.ListValue) *sppb.KeyRange {
		return &sppb.KeyRange{StartKeyType: &sppb.KeyRange_StartClosed{StartClosed: from}, EndKeyType: &sppb.KeyRange_EndClosed{EndClosed: to}}
	}
	ranges := func(all ...*sppb.KeyRange) *sppb.KeySet { return &sppb.KeySet{Ranges: all} }
	after := closed(nil, key("b\U0010ffff"))
	after.StartKeyType = &sppb.KeyRange_StartOpen{StartOpen: key("b/c")}
	const low, high = sppb.RequestOptions_PRIORITY_LOW, sppb.RequestOptions_PRIORITY_HIGH
	bounds := map[table.Bound]*sppb.TransactionOptions_ReadOnly{
		table.Present: {ReturnReadTimestamp: true, TimestampBound: &sppb.TransactionOptions_ReadOnly_ExactStaleness{ExactStaleness: &durationpb.Duration{}}},
		table.Strong:  {ReturnReadTimestamp: true, TimestampBound: &sppb.TransactionOptions_ReadOnly_Strong{Strong: true}},
	}
	w := &wire{}
	s := busy(t, status.Error(codes.PermissionDenied, "no"), w.dial()...).Store.(table.Spanner)
	for _, c := range []struct {
		keys table.Keys
		set  *sppb.KeySet
		list sppb.RequestOptions_Priority
	}{
		{table.Keys{Names: []string{"a", "b"}}, &sppb.KeySet{Keys: []*structpb.ListValue{key("a"), key("b")}}, high},
		{table.Keys{Ranges: []table.Range{{From: "a", To: "b"}, {From: "c", To: "c"}}}, ranges(closed(key("a"), key("b")), closed(key("c"), key("c"))), low},
		{table.Keys{Names: []string{"c"}, Ranges: []table.Range{{From: "a", To: "b"}}, Limit: 7}, &sppb.KeySet{Keys: []*structpb.ListValue{key("c")}, Ranges: []*sppb.KeyRange{closed(key("a"), key("b"))}}, high},
		{table.Keys{All: true}, ranges(closed(key(""), key())), low},
		{table.Keys{All: true, Busy: true}, ranges(closed(key(""), key())), low},
		{table.Keys{All: true, Busy: true, Prefix: "b"}, ranges(closed(key("b"), key("b\U0010ffff"))), low},
		{table.Keys{All: true, Prefix: "b", After: "b/c", Limit: 100}, ranges(after), low},
	} {
		limit := int64(c.keys.Limit)
		if limit == 0 {
			limit = 1<<31 - 1
		}
		for _, spelled := range [][2]string{{"locks", "locks"}, {"public.Locks", "Locks"}, {"PUBLIC.locks", "locks"}, {"app.locks", "app.locks"}} {
			for step, priority := range map[string]sppb.RequestOptions_Priority{"observe": high, "list": c.list, "prune": low} {
				s.Table = spelled[0]
				want := &sppb.ReadRequest{Table: spelled[1], Columns: []string{table.ColName, table.ColHeartbeat, table.ColToken, table.ColWriter}, KeySet: c.set, Limit: limit,
					RequestOptions: &sppb.RequestOptions{Priority: priority, RequestTag: "spindle-" + step}, OrderBy: sppb.ReadRequest_ORDER_BY_PRIMARY_KEY}
				is := func(got *sppb.ReadRequest) {
					want.Session, want.Transaction, want.LockHint, want.RequestOptions.TransactionTag = got.Session, got.Transaction, got.LockHint, got.RequestOptions.TransactionTag
					assert.True(t, proto.Equal(want, got), "%v of %s: %v", c.keys, spelled[0], got)
				}
				for bound, snapshot := range bounds {
					_, _, err := s.Read(t.Context(), step, bound, c.keys)
					require.Error(t, err)
					reads, queries := 0, 0
					for _, m := range w.taken() {
						switch m := m.(type) {
						case *sppb.ReadRequest:
							reads++
							is(m)
							assert.True(t, proto.Equal(snapshot, m.GetTransaction().GetSingleUse().GetReadOnly()), "bound %d: %v", bound, m)
						case *sppb.ExecuteSqlRequest:
							queries++
							assert.True(t, proto.Equal(snapshot, m.GetTransaction().GetSingleUse().GetReadOnly()), "bound %d: %v", bound, m)
							assert.True(t, proto.Equal(want.RequestOptions, m.GetRequestOptions()), "%v", m)
						}
					}
					assert.Equal(t, 1, reads)
					assert.Equal(t, c.keys.Busy && c.keys.Prefix == "", queries == 1, "%v", c.keys)
				}
				_, err := s.Transact(t.Context(), step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
					_, err := r.Read(ctx, c.keys)
					return nil, err
				})
				require.Error(t, err)
				sent := w.taken()
				require.IsType(t, &sppb.ReadRequest{}, sent[0])
				is(sent[0].(*sppb.ReadRequest))
			}
		}
	}
}

// script is a Spanner that gives each request the next answer, and numbers its transactions.
type script struct {
	answers []error
	opens   bool // a read fails when its stream is opened, instead of when its rows are received
	begun   int
	read    string // the transaction in which the last read was made
	commit  *sppb.CommitRequest
	ended   []string // the transactions that were rolled back while the request could still be sent
}

func (s *script) next() (err error) {
	if len(s.answers) > 0 {
		err, s.answers = s.answers[0], s.answers[1:]
	}
	return err
}

func says(code codes.Code) error { return status.Error(code, fmt.Sprint("it says ", code)) }

func (s *script) begin() []byte {
	s.begun++
	return fmt.Append(nil, s.begun)
}

func (s *script) dial() []grpc.DialOption {
	return append(table.DialOptions(), grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		switch reply := reply.(type) {
		case *sppb.Transaction:
			if err := s.next(); err != nil {
				return err
			}
			reply.Id = s.begin()
		case *sppb.CommitResponse:
			s.commit = req.(*sppb.CommitRequest)
			reply.CommitTimestamp = timestamppb.Now()
		default:
			if end, is := req.(*sppb.RollbackRequest); is && ctx.Err() == nil {
				s.ended = append(s.ended, string(end.TransactionId))
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		return nil
	}), grpc.WithChainStreamInterceptor(func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		if s.opens {
			if err := s.next(); err != nil {
				return nil, err
			}
		}
		return &reads{failing: failing{ctx: ctx}, script: s}, nil
	}))
}

// reads is the stream of a read.
type reads struct {
	failing
	*script
	asked *sppb.TransactionSelector // until the answer is received
}

func (r *reads) SendMsg(m any) error {
	r.asked = m.(interface {
		GetTransaction() *sppb.TransactionSelector
	}).GetTransaction()
	return nil
}

func (r *reads) RecvMsg(m any) error {
	if r.asked == nil {
		return io.EOF
	}
	if !r.opens {
		if err := r.next(); err != nil {
			return err
		}
	}
	answer := m.(*sppb.PartialResultSet)
	answer.Metadata = metadataOfRows()
	if r.read = string(r.asked.GetId()); r.asked.GetBegin() != nil {
		answer.Metadata.Transaction = &sppb.Transaction{Id: r.begin()}
		r.read = string(answer.Metadata.Transaction.Id)
	}
	r.asked = nil
	return nil
}

// readAndDelete is a transaction on row a.
func readAndDelete(ctx context.Context, r table.Reader) ([]table.Write, error) {
	_, err := r.Read(ctx, table.Keys{Names: []string{"a"}})
	return []table.Write{{Kind: table.Delete, Name: "a"}}, err
}

// Transact repeats a transaction's first read in another transaction if the read is aborted. It then commits only the other
// transaction, and returns only its error. A claim committed in the first one would change nothing, and an outage taken for a
// conflict would not be reported. Transact rolls back whatever it has begun and does not commit, even if the caller has given up:
// on the emulator, an open transaction blocks everybody.
func TestATransactionIsTheOneThatItsLastReadWasMadeIn(t *testing.T) {
	s := &script{}
	store := busy(t, nil, s.dial()...).Store
	all := []codes.Code{codes.OK, codes.Aborted, codes.Canceled, codes.PermissionDenied, codes.DeadlineExceeded}
	for _, first := range all {
		for _, begin := range all {
			for _, second := range all {
				for _, givesUp := range []bool{false, true} {
					*s = script{answers: []error{says(first)}}
					last := first
					if first == codes.Aborted {
						s.answers = append(s.answers, says(begin), says(second))
						if last = begin; begin == codes.OK {
							last = second
						}
					}
					ctx, cancel := context.WithCancel(t.Context())
					_, err := store.Transact(ctx, "claim", func(ctx context.Context, r table.Reader) ([]table.Write, error) {
						writes, err := readAndDelete(ctx, r)
						if givesUp {
							cancel()
							err = cmp.Or(err, ctx.Err())
						}
						return writes, err
					})
					cancel()
					what := fmt.Sprint(first, begin, second, givesUp, err)
					if last == codes.OK && !givesUp {
						require.NoError(t, err, what)
						assert.Equal(t, s.read, string(s.commit.GetTransactionId()), what)
						assert.Len(t, s.commit.GetMutations(), 1, what)
						assert.Empty(t, s.ended, what)
						continue
					}
					assert.Equal(t, last == codes.Aborted, errors.Is(err, table.ErrAborted), what)
					if last == codes.OK {
						assert.ErrorIs(t, err, context.Canceled, what)
					} else {
						assert.ErrorContains(t, err, fmt.Sprint("it says ", last), what)
					}
					assert.Nil(t, s.commit, what)
					assert.Len(t, s.ended, s.begun, what)
				}
			}
		}
	}
}

// Transact does not commit a transaction whose second read was aborted. If Transact repeated that read in another transaction, Spanner
// would not check whether the rows of the first read have changed. The commit could then release a lock that has a new holder.
func TestATransactionOfTwoReadsIsOneTransaction(t *testing.T) {
	s := &script{}
	store := busy(t, nil, s.dial()...).Store
	for _, second := range []codes.Code{codes.OK, codes.Aborted} {
		*s = script{answers: []error{nil, says(second)}}
		_, err := store.Transact(t.Context(), "claim", func(ctx context.Context, r table.Reader) ([]table.Write, error) {
			if _, err := readAndDelete(ctx, r); err != nil {
				return nil, err
			}
			return readAndDelete(ctx, r)
		})
		assert.Equal(t, second == codes.Aborted, errors.Is(err, table.ErrAborted), "%v", err)
		assert.Equal(t, second == codes.OK, s.commit != nil)
		assert.Equal(t, 1, s.begun)
	}
}

// If a read times out after an outage, its error names the outage, whether the client learned of it when it opened the stream or
// when it received rows. Otherwise, an operator would look for a fault of the network while a quota is used up. An error that is an
// answer does not name the outage.
func TestAReadThatTimesOutNamesTheOutageBeforeIt(t *testing.T) {
	outage := exhausted(t, time.Millisecond)
	s := &script{}
	tab := busy(t, nil, s.dial()...)
	for what, send := range map[string]func(ctx context.Context) error{
		"read": func(ctx context.Context) error { _, err := tab.Observe(ctx, "a"); return err },
		"query": func(ctx context.Context) error {
			_, err := tab.Read(ctx, "list", table.Present, table.Keys{All: true, Busy: true})
			return err
		},
		"transaction": func(ctx context.Context) error { _, err := tab.Store.Transact(ctx, "claim", readAndDelete); return err },
	} {
		for _, last := range []codes.Code{codes.DeadlineExceeded, codes.PermissionDenied, codes.Canceled} {
			for _, opens := range []bool{false, true} {
				*s = script{answers: []error{outage, says(last), outage, says(last)}, opens: opens}
				err := send(t.Context())
				require.ErrorContains(t, err, fmt.Sprint("it says ", last), what)
				want := last
				if last == codes.DeadlineExceeded {
					want = codes.ResourceExhausted
				}
				assert.Equal(t, want, spanner.ErrCode(err), "%s, at the opening %v: %v", what, opens, err)
				assert.Equal(t, want != last, strings.Contains(err.Error(), "the quota is used up"), "%s, at the opening %v: %v", what, opens, err)
			}
		}
	}
}

// If Spanner refuses a read in a transaction with either of two codes, the read is repeated without the replicas that the client
// prefers. If Spanner refuses that, too, the first error counts, because it is about the read itself. After any other code, the
// read is not repeated.
func TestARefusedReadIsRepeatedOnce(t *testing.T) {
	s := &script{}
	store := busy(t, nil, s.dial()...).Store
	for _, first := range []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.OutOfRange} {
		for _, second := range []codes.Code{codes.OK, codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented} {
			*s = script{answers: []error{says(first), says(second)}}
			_, err := store.Transact(t.Context(), "claim", readAndDelete)
			again := first == codes.InvalidArgument || first == codes.FailedPrecondition
			if again && second == codes.OK {
				require.NoError(t, err, first)
				assert.Equal(t, s.read, string(s.commit.GetTransactionId()))
			} else {
				assert.ErrorContains(t, err, fmt.Sprint("it says ", first), second)
			}
			assert.Equal(t, again, len(s.answers) == 0, "%v, %v", first, second)
		}
	}
}

// Each write becomes a mutation of its kind. The mutation sets the write's columns and no others, with the commit timestamp where
// the write's value is Now. Commits outside transactions are tagged with their step, too.
func TestEachWriteIsItsMutation(t *testing.T) {
	s := &script{}
	store := busy(t, nil, s.dial()...).Store
	at := time.Date(2026, 11, 29, 8, 0, 0, 1000, time.UTC)
	set := []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColToken, Value: at}, {Column: table.ColWriter, Value: nil}}
	writes := []table.Write{{Kind: table.Insert, Name: "a", Set: set}, {Kind: table.Update, Name: "b", Set: set[:1]}, {Kind: table.Put, Name: "c", Set: set[1:]}, {Kind: table.Delete, Name: "d"}, {Kind: table.Update, Name: "e"}}
	of := func(columns ...string) func(values ...any) *sppb.Mutation_Write {
		return func(values ...any) *sppb.Mutation_Write {
			return &sppb.Mutation_Write{Table: "locktable", Columns: columns, Values: []*structpb.ListValue{listOf(t, values...)}}
		}
	}
	const now, then = "spanner.commit_timestamp()", "2026-11-29T08:00:00.000001Z"
	want := []*sppb.Mutation{
		{Operation: &sppb.Mutation_Insert{Insert: of("name", "heartbeat", "token", "writer")("a", now, then, nil)}},
		{Operation: &sppb.Mutation_Update{Update: of("name", "heartbeat")("b", now)}},
		{Operation: &sppb.Mutation_InsertOrUpdate{InsertOrUpdate: of("name", "token", "writer")("c", then, nil)}},
		{Operation: &sppb.Mutation_Delete_{Delete: &sppb.Mutation_Delete{Table: "locktable", KeySet: &sppb.KeySet{Keys: []*structpb.ListValue{listOf(t, "d")}}}}},
		{Operation: &sppb.Mutation_Update{Update: of("name")("e")}},
	}
	for step, priority := range map[string]sppb.RequestOptions_Priority{"heartbeat": sppb.RequestOptions_PRIORITY_HIGH, "prune": sppb.RequestOptions_PRIORITY_LOW} {
		for how, commit := range map[string]func() error{
			"commit": func() error { return store.Commit(t.Context(), step, writes) },
			"transaction": func() error {
				_, err := store.Transact(t.Context(), step, func(context.Context, table.Reader) ([]table.Write, error) { return writes, nil })
				return err
			},
		} {
			*s = script{}
			require.NoError(t, commit(), how)
			require.Len(t, s.commit.GetMutations(), len(want), how)
			for i, m := range s.commit.GetMutations() {
				assert.True(t, proto.Equal(want[i], m), "%s: %v", how, m)
			}
			assert.Equal(t, priority, s.commit.GetRequestOptions().GetPriority(), how)
			assert.Equal(t, "spindle-"+step, s.commit.GetRequestOptions().GetTransactionTag(), how)
		}
	}
}
