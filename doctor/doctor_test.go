package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/doctor"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/spindletest"
)

// liar stands between a client and the emulator, and breaks one thing that Spanner promises.
type liar struct {
	commit func(req *sppb.CommitRequest, reply *sppb.CommitResponse, do func() error) error
	read   func(req *sppb.ReadRequest) error                                // before it is sent
	query  func(req *sppb.ExecuteSqlRequest) error                          // before it is sent
	time   func(req *sppb.ReadRequest, at *timestamppb.Timestamp) time.Time // of a snapshot
	rows   func(req *sppb.ReadRequest, values []*structpb.Value)            // of a reply
}

func (l *liar) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				do := func() error { return invoke(ctx, method, req, reply, cc, opts...) }
				if r, ok := req.(*sppb.CommitRequest); ok && l.commit != nil {
					return l.commit(r, reply.(*sppb.CommitResponse), do)
				}
				return do()
			})),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := streamer(ctx, desc, cc, method, opts...)
				return &stream{ClientStream: s, liar: l}, err
			})),
	}
}

type stream struct {
	grpc.ClientStream
	liar *liar
	req  *sppb.ReadRequest
}

func (s *stream) SendMsg(m any) error {
	s.req, _ = m.(*sppb.ReadRequest)
	if query, ok := m.(*sppb.ExecuteSqlRequest); ok && s.liar.query != nil {
		if err := s.liar.query(query); err != nil {
			return err
		}
	}
	if s.req != nil && s.liar.read != nil {
		if err := s.liar.read(s.req); err != nil {
			return err
		}
	}
	return s.ClientStream.SendMsg(m)
}

func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if part, ok := m.(*sppb.PartialResultSet); ok && err == nil && s.req != nil && s.liar.rows != nil {
		s.liar.rows(s.req, part.GetValues())
	}
	if part, ok := m.(*sppb.PartialResultSet); ok && err == nil && s.req != nil && s.liar.time != nil {
		if txn := part.GetMetadata().GetTransaction(); txn.GetReadTimestamp() != nil {
			txn.ReadTimestamp = timestamppb.New(s.liar.time(s.req, txn.ReadTimestamp))
		}
	}
	return err
}

func connect(t *testing.T, db *spindletest.Database, l *liar) *spanner.Client {
	t.Helper()
	client, err := spanner.NewClientWithConfig(context.Background(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true},
		slices.Concat(db.ClientOptions(), spindle.ClientOptions(0), l.options())...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

type dialect int

const (
	googleSQL dialect = iota
	postgreSQL
)

// database makes a database with further tables, of statements in each of the dialects.
func (d dialect) database(t *testing.T, statements ...string) *spindletest.Database {
	var opts []spindletest.Option
	if d == postgreSQL {
		opts = append(opts, spindletest.PostgreSQL())
	}
	if statements != nil {
		opts = append(opts, spindletest.WithDDL(statements[d]))
	}
	return spindletest.New(t, opts...)
}

func needEmulator(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
}

func inBothDialects(t *testing.T, f func(t *testing.T, d dialect)) {
	needEmulator(t)
	t.Parallel()
	for name, d := range map[string]dialect{"GoogleSQL": googleSQL, "PostgreSQL": postgreSQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, d)
		})
	}
}

func requireEmpty(t *testing.T, db *spindletest.Database) {
	t.Helper()
	var names []string
	require.NoError(t, db.Client.Single().Read(t.Context(), db.Table, spanner.AllKeys(), []string{"name"}).Do(func(r *spanner.Row) error {
		var name string
		names = append(names, name)
		return r.Columns(&names[len(names)-1])
	}))
	require.Empty(t, names, "rows are left behind")
}

func TestEveryAssumptionHoldsOnTheEmulator(t *testing.T) {
	inBothDialects(t, func(t *testing.T, d dialect) {
		db := d.database(t)
		report, err := doctor.Run(t.Context(), db.Client, db.Table)
		require.NoError(t, err)
		require.NoError(t, report.Err())
		for _, c := range report.Checks {
			assert.Equal(t, doctor.OK, c.Verdict, "%+v", c)
			assert.NotEmpty(t, c.Found, c.Name)
		}
		requireEmpty(t, db)
		assert.Equal(t, []string{db.Path, db.Table}, []string{report.Database, report.Table})
		require.NotNil(t, report.RoundTrips)
		assert.Positive(t, report.RoundTrips.Lease())
		require.NotNil(t, report.Clock)
		assert.Positive(t, report.Clock.Over)

		text, err := json.Marshal(report)
		require.NoError(t, err)
		var back doctor.Report
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, report, back)
	})
}

func isKeyOnly(m *sppb.Mutation) bool { return len(m.GetUpdate().GetColumns()) == 1 }

// without takes mutations out of a commit.
func without(r *sppb.CommitRequest, drop func(i int, m *sppb.Mutation) bool) {
	var kept []*sppb.Mutation
	for i, m := range r.GetMutations() {
		if !drop(i, m) {
			kept = append(kept, m)
		}
	}
	r.Mutations = kept
}

func tag(r *sppb.CommitRequest) string { return r.GetRequestOptions().GetTransactionTag() }

func isPresent(r *sppb.ReadRequest) bool {
	return r.GetTransaction().GetSingleUse().GetReadOnly().GetExactStaleness() != nil
}

// isOfShown returns whether a request reads the row "shown" and no other.
func isOfShown(r *sppb.ReadRequest) bool {
	keys := r.GetKeySet().GetKeys()
	return len(keys) == 1 && strings.HasSuffix(keys[0].Values[0].GetStringValue(), "/shown")
}

func isStrong(r *sppb.ReadRequest) bool {
	return r.GetTransaction().GetSingleUse().GetReadOnly().GetStrong()
}

// frozen is a clock of snapshots that has stopped.
func frozen(which func(*sppb.ReadRequest) bool) func(*sppb.ReadRequest, *timestamppb.Timestamp) time.Time {
	var stopped atomic.Pointer[time.Time]
	return func(r *sppb.ReadRequest, at *timestamppb.Timestamp) time.Time {
		now := at.AsTime()
		if !which(r) {
			return now
		}
		stopped.CompareAndSwap(nil, &now)
		return *stopped.Load()
	}
}

func shifted(which func(*sppb.ReadRequest) bool, by time.Duration) func(*sppb.ReadRequest, *timestamppb.Timestamp) time.Time {
	return func(r *sppb.ReadRequest, at *timestamppb.Timestamp) time.Time {
		if !which(r) {
			return at.AsTime()
		}
		return at.AsTime().Add(by)
	}
}

// asIfIdle is a strong read's time as a server may choose it while nobody writes: that of the last commit.
func asIfIdle() *liar {
	var last atomic.Pointer[time.Time]
	return &liar{
		commit: func(_ *sppb.CommitRequest, reply *sppb.CommitResponse, do func() error) error {
			err := do()
			if at := reply.GetCommitTimestamp(); at != nil {
				t := at.AsTime()
				last.Store(&t)
			}
			return err
		},
		time: func(r *sppb.ReadRequest, at *timestamppb.Timestamp) time.Time {
			if t := last.Load(); isStrong(r) && t != nil {
				return *t
			}
			return at.AsTime()
		},
	}
}

// clock is Spanner's time as a machine sees it whose own clock runs at that rate.
func clock(rate float64) func(*sppb.ReadRequest, *timestamppb.Timestamp) time.Time {
	var mu sync.Mutex
	var start time.Time
	return func(r *sppb.ReadRequest, at *timestamppb.Timestamp) time.Time {
		mu.Lock()
		defer mu.Unlock()
		if start.IsZero() {
			start = at.AsTime()
		}
		if !isPresent(r) {
			return at.AsTime()
		}
		return start.Add(time.Duration(float64(at.AsTime().Sub(start)) / rate))
	}
}

// repeating is a database whose commits of one check all have, and store, the timestamp of the first.
func repeating() *liar {
	var first atomic.Pointer[timestamppb.Timestamp]
	return &liar{
		commit: func(r *sppb.CommitRequest, reply *sppb.CommitResponse, do func() error) error {
			err := do()
			if err == nil && tag(r) == "spindle-doctor-timestamps" {
				first.CompareAndSwap(nil, reply.CommitTimestamp)
				reply.CommitTimestamp = first.Load()
			}
			return err
		},
		rows: func(r *sppb.ReadRequest, values []*structpb.Value) {
			name, token := slices.Index(r.Columns, "name"), slices.Index(r.Columns, "token")
			if at := first.Load(); at != nil && len(values) == len(r.Columns) && strings.HasSuffix(values[name].GetStringValue(), "/timestamps") {
				values[token] = structpb.NewStringValue(at.AsTime().Format(time.RFC3339Nano))
			}
		},
	}
}

// forgetsFencesAfterClaims is a database that refuses the fenced commits in flight during a claim, but leaves the fence
// out of those commits, blind or in transactions, that begin after the claim was answered. It answers the claim once
// both holders' commits were refused.
func forgetsFencesAfterClaims(blind bool) *liar {
	var superseded atomic.Value // the key of a lease row
	superseded.Store("")
	refused := make(chan bool, 1000)
	fence := func(r *sppb.CommitRequest) string {
		for _, m := range r.GetMutations() {
			if isKeyOnly(m) {
				return m.GetUpdate().Values[0].Values[0].GetStringValue()
			}
		}
		return ""
	}
	return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
		fenced := tag(r) == "spindle-doctor-fence"
		if fenced && blind == (r.GetSingleUseTransaction() != nil) && fence(r) == superseded.Load() {
			without(r, func(_ int, m *sppb.Mutation) bool { return isKeyOnly(m) })
		}
		err := do()
		if fenced && table.Missing(err) {
			refused <- true
		}
		if gone := r.GetMutations()[0].GetDelete().GetKeySet().GetKeys(); err == nil && tag(r) == "spindle-claim" && gone != nil {
			if key := gone[0].Values[0].GetStringValue(); strings.Contains(key, "/fence/") {
				for range 2 {
					select {
					case <-refused:
					case <-time.After(3 * time.Second):
					}
				}
				superseded.Store(key)
			}
		}
		return err
	}}
}

func denying(message string, which func(*sppb.CommitRequest) bool) *liar {
	return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
		if which(r) {
			return status.Error(codes.PermissionDenied, message)
		}
		return do()
	}}
}

// Each case breaks one assumption, whatever the rest of the database does right.
var broken = []struct {
	name    string
	liar    func() *liar
	check   string
	verdict doctor.Verdict
	says    string
}{
	{"the schema may not be read", func() *liar {
		return &liar{query: func(*sppb.ExecuteSqlRequest) error {
			return status.Error(codes.PermissionDenied, "Role r does not have required privileges on information_schema.")
		}}
	}, "table", doctor.NotChecked, "not allowed to read the schema"},
	{"commits are not allowed", func() *liar {
		return denying("Caller is missing IAM permission spanner.databases.write on resource d.", func(r *sppb.CommitRequest) bool { return r.GetSingleUseTransaction() != nil })
	}, "permissions", doctor.Failed, "missing: spanner.databases.write;"},
	{"deletes are not allowed to the role", func() *liar {
		return denying("Role r does not have required privileges on table locktable.", func(r *sppb.CommitRequest) bool {
			return r.GetSingleUseTransaction() != nil && len(r.GetMutations()) == 1 && r.GetMutations()[0].GetDelete() != nil
		})
	}, "permissions", doctor.Failed, "missing: spanner.databases.write (DELETE, for a database role);"},
	{"transactions are not allowed", func() *liar {
		return &liar{read: func(r *sppb.ReadRequest) error {
			if r.GetTransaction().GetSingleUse() == nil {
				return status.Error(codes.PermissionDenied, "Caller is missing IAM permission spanner.databases.beginOrRollbackReadWriteTransaction on resource d.")
			}
			return nil
		}}
	}, "permissions", doctor.Failed, "missing: spanner.databases.beginOrRollbackReadWriteTransaction;"},
	{"replies have no timestamp", func() *liar {
		return &liar{commit: func(_ *sppb.CommitRequest, reply *sppb.CommitResponse, do func() error) error {
			err := do()
			reply.CommitTimestamp = nil
			return err
		}}
	}, "replies", doctor.Failed, "had no timestamp"},
	{"timestamps are not what is stored", func() *liar {
		return &liar{commit: func(_ *sppb.CommitRequest, reply *sppb.CommitResponse, do func() error) error {
			err := do()
			if err == nil {
				reply.CommitTimestamp = timestamppb.New(reply.CommitTimestamp.AsTime().Add(time.Microsecond))
			}
			return err
		}}
	}, "commit timestamps", doctor.Failed, "but stored"},
	{"timestamps repeat", repeating, "commit timestamps", doctor.Failed, "has the timestamp"},
	{"key-only updates are ignored", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			without(r, func(_ int, m *sppb.Mutation) bool { return isKeyOnly(m) })
			return do()
		}}
	}, "key-only update", doctor.Failed, "that does not exist was committed"},
	{"key-only updates are refused", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			for _, m := range r.GetMutations() {
				if isKeyOnly(m) {
					return status.Error(codes.FailedPrecondition, "an update has to have values")
				}
			}
			return do()
		}}
	}, "key-only update", doctor.Failed, "an update has to have values"},
	{"refusals don't say what is missing", func() *liar {
		return &liar{commit: func(_ *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			err := do()
			if status.Code(err) == codes.NotFound {
				return status.Error(codes.NotFound, "not found")
			}
			return err
		}}
	}, "key-only update", doctor.Warning, "does not indicate that a row is missing"},
	{"an update of what the same commit deletes is left out", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			ms := r.GetMutations()
			without(r, func(i int, m *sppb.Mutation) bool { return isKeyOnly(m) && i+1 < len(ms) && ms[i+1].GetDelete() != nil })
			return do()
		}}
	}, "release", doctor.Failed, "was committed"},
	{"a fence is not serialised against a claim", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-doctor-fence" {
				without(r, func(_ int, m *sppb.Mutation) bool { return isKeyOnly(m) })
			}
			return do()
		}}
	}, "fence", doctor.Failed, "a claim superseded that token"},
	{"a blind commit that begins after a claim is not fenced", func() *liar { return forgetsFencesAfterClaims(true) }, "fence", doctor.Failed, "a claim superseded that token"},
	{"a transaction that begins after a claim is not fenced", func() *liar { return forgetsFencesAfterClaims(false) }, "fence", doctor.Failed, "a claim superseded that token"},
	{"a transaction that was overtaken is committed", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, reply *sppb.CommitResponse, do func() error) error {
			err := do()
			if tag(r) == "spindle-doctor-optimistic" && status.Code(err) == codes.Aborted {
				proto.Reset(reply)
				reply.CommitTimestamp = timestamppb.New(time.Now().Truncate(time.Microsecond))
				return nil
			}
			return err
		}}
	}, "optimistic", doctor.Failed, "although a row that it had read had changed"},
	{"optimistic transactions are refused", func() *liar {
		return &liar{read: func(r *sppb.ReadRequest) error {
			if r.GetTransaction().GetSingleUse() == nil {
				return status.Error(codes.InvalidArgument, "read lock mode OPTIMISTIC is not supported")
			}
			return nil
		}}
	}, "optimistic", doctor.Failed, "OPTIMISTIC is not supported"},
	{"a transaction locks what it reads", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-doctor-overtake" {
				return status.Error(codes.DeadlineExceeded, "it waits for a lock")
			}
			return do()
		}}
	}, "optimistic", doctor.Warning, "for a transaction that had only read"},
	{"heartbeats of a superseded holder are accepted", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-heartbeat" {
				without(r, func(_ int, m *sppb.Mutation) bool { return isKeyOnly(m) })
			}
			return do()
		}}
	}, "cycle", doctor.Failed, "a superseded holder's heartbeat"},
	{"a claim does not need its free row", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-claim" && r.GetSingleUseTransaction() != nil {
				without(r, func(_ int, m *sppb.Mutation) bool { return isKeyOnly(m) || m.GetInsert() != nil })
			}
			return do()
		}}
	}, "free rows", doctor.Failed, "a claim whose free row is missing should have failed with NOT_FOUND; its error was: <nil>"},
	{"times that have passed are refused", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-claim" && slices.ContainsFunc(r.Mutations, isKeyOnly) {
				return status.Error(codes.FailedPrecondition, "Cannot write timestamps in the future")
			}
			return do()
		}}
	}, "free rows", doctor.Warning, "a timestamp in the past is refused"},
	{"a confirmation does not need its member", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-confirm-partitions" {
				without(r, func(_ int, m *sppb.Mutation) bool { return isKeyOnly(m) })
			}
			return do()
		}}
	}, "group", doctor.Failed, "for a member that had left"},
	{"a read leaves ranges out", func() *liar {
		return &liar{read: func(r *sppb.ReadRequest) error {
			if n := len(r.GetKeySet().GetRanges()); n > 100 {
				r.KeySet.Ranges = r.KeySet.Ranges[:n/2]
			}
			return nil
		}}
	}, "many keys", doctor.Failed, "returned 15 rows, 15 of the 20 rows that exist"},
	{"reads at the present don't advance", func() *liar { return &liar{time: frozen(isPresent)} }, "present", doctor.Failed, "advanced by only 0s"},
	{"a read at the present misses a commit", func() *liar {
		return &liar{rows: func(r *sppb.ReadRequest, values []*structpb.Value) {
			if token := slices.Index(r.Columns, "token"); isPresent(r) && len(values) == len(r.Columns) && strings.HasSuffix(values[0].GetStringValue(), "/shown") {
				values[token] = structpb.NewStringValue("2026-01-02T03:04:05.000006Z")
			}
		}}
	}, "present", doctor.Failed, "did not return a row committed at"},
	{"a strong read misses a row", func() *liar {
		return &liar{read: func(r *sppb.ReadRequest) error {
			if isStrong(r) && isOfShown(r) {
				r.GetKeySet().GetKeys()[0].Values[0] = structpb.NewStringValue("absent")
			}
			return nil
		}}
	}, "strong", doctor.Failed, "did not return a row committed at"},
	{"a commit beside a transaction is refused", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-doctor-overtake" {
				return status.Error(codes.FailedPrecondition, "only one at a time")
			}
			return do()
		}}
	}, "optimistic", doctor.Failed, "only one at a time"},
	{"one read at the present is of the past", func() *liar {
		var shown atomic.Int64
		return &liar{time: shifted(func(r *sppb.ReadRequest) bool {
			return isPresent(r) && isOfShown(r) && shown.Add(1) == 2
		}, -3*time.Second)}
	}, "present", doctor.Warning, "behind"},
	{"strong reads don't advance", asIfIdle, "strong", doctor.Note, "advanced by only 0s"},
	{"strong reads are of the past", func() *liar { return &liar{time: shifted(isStrong, -time.Minute)} }, "strong", doctor.Failed, "earlier than a commit that was acknowledged"},
	{"the clock is too slow", func() *liar { return &liar{time: clock(0.95)} }, "clock", doctor.Failed, "slow"},
	{"a ticket is lost", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-queue" && len(r.Mutations) > 3 {
				r.Mutations = slices.Delete(r.Mutations, 2, 3)
			}
			return do()
		}}
	}, "queue", doctor.Warning, "position 3 of the queue has the wrong ticket"},
	{"rows can't be deleted at the end", func() *liar {
		return &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-doctor" && slices.ContainsFunc(r.GetMutations(), func(m *sppb.Mutation) bool { return m.GetDelete() != nil }) {
				return status.Error(codes.FailedPrecondition, "not now")
			}
			return do()
		}}
	}, "clean-up", doctor.Warning, "not now"},
}

func TestWhatIsBrokenIsNamedAndNothingElse(t *testing.T) {
	needEmulator(t)
	for i, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			db := dialect(i % 2).database(t) // what is between them and the client knows no dialect
			report, err := doctor.Run(t.Context(), connect(t, db, b.liar()), db.Table)
			require.NoError(t, err)
			for _, c := range report.Checks {
				if c.Name == b.check {
					assert.Equal(t, b.verdict, c.Verdict, "%+v", c)
					assert.Contains(t, c.Found, b.says)
					assert.NotEmpty(t, c.Means)
					assert.NotEmpty(t, c.Do)
					continue
				}
				assert.Contains(t, []doctor.Verdict{doctor.OK, doctor.NotChecked}, c.Verdict, "%+v", c)
			}
			assert.Equal(t, b.verdict != doctor.Failed, report.OK())
		})
	}
}

// The emulator makes most commits wait for a transaction, or aborts them, and Spanner might make one wait for another reason. One of five
// attempts is enough.
func TestACommitThatWaitsOnceIsNoWarning(t *testing.T) {
	late := status.Error(codes.DeadlineExceeded, "it waits for a lock")
	for how, answers := range map[string][]error{
		"it waits for a lock":          {late},
		"it is aborted, and then late": {status.Error(codes.Aborted, "aborted due to an active transaction"), late},
	} {
		t.Run(how, func(t *testing.T) {
			needEmulator(t)
			t.Parallel()
			db := spindletest.New(t)
			var tries atomic.Int64
			client := connect(t, db, &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
				if tag(r) == "spindle-doctor-overtake" {
					if n := int(tries.Add(1)); n <= len(answers) {
						return answers[n-1]
					}
				}
				return do()
			}})
			report, err := doctor.Run(t.Context(), client, db.Table)
			require.NoError(t, err)
			for _, c := range report.Checks {
				assert.Equal(t, doctor.OK, c.Verdict, "%+v", c)
			}
			assert.Greater(t, int(tries.Load()), len(answers))
		})
	}
}

// A table that is wrong is described as a whole: a user mends it once.
func TestAWrongTableIsNamed(t *testing.T) {
	inBothDialects(t, func(t *testing.T, d dialect) {
		db := d.database(t, "CREATE TABLE wrong (name STRING(36)) PRIMARY KEY (name)", "CREATE TABLE wrong (name varchar(36) PRIMARY KEY)")
		for tableName, says := range map[string][]string{"wrong": {"column heartbeat is missing", "column token is missing", "column writer is missing"}, "nowhere": {"the table is missing"}} {
			report, err := doctor.Run(t.Context(), db.Client, tableName)
			require.NoError(t, err)
			for _, problem := range says {
				assert.ErrorContains(t, report.Err(), problem)
			}
			for _, c := range report.Checks {
				if c.Name != "table" {
					assert.NotEqual(t, doctor.Failed, c.Verdict, "%+v", c)
				}
			}
		}
	})
}

func TestBadArgumentsAndAnAbsentDatabaseAreErrors(t *testing.T) {
	_, err := doctor.Run(t.Context(), nil, "locktable")
	assert.ErrorContains(t, err, "client is nil")
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	db := spindletest.New(t)
	_, err = doctor.Run(t.Context(), db.Client, "a b")
	assert.ErrorContains(t, err, "not an identifier")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time"))
	report, err := doctor.Run(ctx, db.Client, db.Table)
	assert.ErrorContains(t, err, "no time")
	for _, c := range report.Checks {
		assert.Equal(t, doctor.NotChecked, c.Verdict)
	}
}

// A run is interrupted after each of its first commits, and then at some of the others.
func TestNothingIsLeftBehindByARunThatIsInterrupted(t *testing.T) {
	inBothDialects(t, func(t *testing.T, d dialect) {
		db := d.database(t)
		for after := int64(1); after < 100; after += 1 + after/2 {
			ctx, cancel := context.WithCancel(t.Context())
			var commits atomic.Int64
			client := connect(t, db, &liar{commit: func(_ *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
				if commits.Add(1) == after {
					cancel()
				}
				return do()
			}})
			_, err := doctor.Run(ctx, client, db.Table)
			require.ErrorIs(t, err, context.Canceled)
			requireEmpty(t, db)
			cancel()
		}
	})
}

// The tickets of a run that ends between their insertion and their deletion must not be left: they belong to no waiter.
// Run returns ctx's error, even if an outage has prevented an earlier check: the caller must not try again.
func TestTheTicketsOfARunThatIsInterruptedAreDeleted(t *testing.T) {
	inBothDialects(t, func(t *testing.T, d dialect) {
		db := d.database(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		inserted := false
		client := connect(t, db, &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
			if tag(r) == "spindle-doctor-update" {
				return status.Error(codes.Internal, "not now")
			}
			err := do()
			if put := r.GetMutations()[0].GetInsertOrUpdate(); put != nil && table.IsTicket(put.Values[0].Values[0].GetStringValue()) {
				inserted = true
				cancel()
			}
			return err
		}})
		_, err := doctor.Run(ctx, client, db.Table)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, inserted)
		requireEmpty(t, db)
	})
}

// If the check of the fence can't be made, none of its commits is sent after it: such a commit could leave a row behind. A
// commit that was not answered is not taken for one that was refused.
func TestAFenceThatCannotBeCheckedLeavesNothingRunning(t *testing.T) {
	needEmulator(t)
	for answered, name := range map[bool]string{false: "the claim is not answered", true: "the commits after the claim are not answered"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := spindletest.New(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var claimed, over, late atomic.Bool
			client := connect(t, db, &liar{commit: func(r *sppb.CommitRequest, _ *sppb.CommitResponse, do func() error) error {
				text := r.String()
				switch {
				case strings.Contains(text, "/free"):
					cancel()
				case strings.Contains(text, "/cycle"):
					over.Store(true)
				case tag(r) == "spindle-doctor-fence":
					late.CompareAndSwap(false, over.Load())
					if claimed.Load() {
						return status.Error(codes.Internal, "not now")
					}
				case strings.Contains(text, "/fence/") && strings.Contains(text, `"second"`):
					if !answered {
						return status.Error(codes.Internal, "not now")
					}
					err := do()
					claimed.Store(err == nil)
					return err
				}
				return do()
			}})
			report, err := doctor.Run(ctx, client, db.Table)
			require.ErrorIs(t, err, context.Canceled)
			at := slices.IndexFunc(report.Checks, func(c doctor.Check) bool { return c.Name == "fence" })
			assert.Equal(t, doctor.NotChecked, report.Checks[at].Verdict, report.Checks[at].Found)
			assert.Contains(t, report.Checks[at].Found, "not now")
			assert.True(t, over.Load())
			assert.False(t, late.Load(), "a commit that the check has begun is sent after it")
			requireEmpty(t, db)
		})
	}
}

// A role that may insert, but not delete, leaves a row. The report says so.
func TestARowThatMayNotBeDeletedIsReported(t *testing.T) {
	inBothDialects(t, func(t *testing.T, d dialect) {
		db := d.database(t)
		for _, c := range []struct {
			denied  func(*sppb.Mutation) bool
			verdict doctor.Verdict
			says    string
		}{
			{func(m *sppb.Mutation) bool { return m.GetDelete() != nil }, doctor.Warning, "privileges"},
			{func(*sppb.Mutation) bool { return true }, doctor.OK, "this run left no rows"},
		} {
			client := connect(t, db, denying("Role r does not have required privileges on table locktable.", func(r *sppb.CommitRequest) bool {
				return slices.ContainsFunc(r.GetMutations(), c.denied)
			}))
			report, err := doctor.Run(t.Context(), client, db.Table)
			require.NoError(t, err)
			at := slices.IndexFunc(report.Checks, func(c doctor.Check) bool { return c.Name == "clean-up" })
			require.GreaterOrEqual(t, at, 0, "%v", report.Checks)
			assert.Equal(t, c.verdict, report.Checks[at].Verdict, report.Checks[at].Found)
			assert.Contains(t, report.Checks[at].Found, c.says)
		}
	})
}

// The rows of locks stay, even if the database returns them to a read that did not ask for them.
func TestWhatAKilledRunLeftIsDeletedOnceItIsOld(t *testing.T) {
	inBothDialects(t, func(t *testing.T, d dialect) {
		db := d.database(t)
		row := func(name string, age time.Duration) *spanner.Mutation {
			return spanner.Insert(db.Table, []string{"name", "token"}, []any{name, time.Now().Add(-age)})
		}
		ticket := func(queue string, age time.Duration) *spanner.Mutation {
			key := table.Ticket{Queue: queue, Time: 1, Nonce: "n"}.Row()
			return spanner.Insert(db.Table, []string{"name", "heartbeat"}, []any{key, time.Now().Add(-age)})
		}
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{
			row("spindle-doctor/old/cycle", 11*time.Minute), row("spindle-doctor/running/cycle", 9*time.Minute), row("spindle-doctors", time.Hour), row("mylock", time.Hour),
			ticket("spindle-doctor/old/queue", 11*time.Minute), ticket("spindle-doctor/running/queue", 9*time.Minute), ticket("mylock", time.Hour)})
		require.NoError(t, err)
		client := connect(t, db, &liar{read: func(r *sppb.ReadRequest) error {
			if all := r.GetKeySet().GetRanges(); len(all) > 0 && all[0].GetStartClosed().GetValues()[0].GetStringValue() == "spindle-doctor/" {
				r.KeySet = &sppb.KeySet{All: true}
			}
			return nil
		}})
		report, err := doctor.Run(t.Context(), client, db.Table)
		require.NoError(t, err)
		assert.Equal(t, "this run left no rows; it also deleted rows that earlier runs had left behind (2)", report.Checks[len(report.Checks)-1].Found)
		var names []string
		require.NoError(t, db.Client.Single().Read(t.Context(), db.Table, spanner.AllKeys(), []string{"name"}).Do(func(r *spanner.Row) error {
			names = append(names, "")
			return r.Columns(&names[len(names)-1])
		}))
		assert.ElementsMatch(t, []string{
			table.Ticket{Queue: "mylock", Time: 1, Nonce: "n"}.Row(), table.Ticket{Queue: "spindle-doctor/running/queue", Time: 1, Nonce: "n"}.Row(),
			"mylock", "spindle-doctor/running/cycle", "spindle-doctors"}, names)
	})
}
