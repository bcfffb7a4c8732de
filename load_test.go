//go:build unix

package spindle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/spindletest"
)

// busyServer is a proxy for an emulator that responds to the application's commits itself. Each response takes a while,
// no matter how many commits there are, so heartbeats wait only for the client. The number of concurrent calls on a
// connection has the same limit as at Google. The locks' own calls go to the emulator.
type busyServer struct {
	answer time.Duration // the delay of responses to the application's commits
	behind *grpc.ClientConn
}

const (
	streams = 100 // the maximum number on a connection
	commit  = "/google.spanner.v1.Spanner/Commit"

	application = "the application" // the tag of the application's transactions
)

func newBusyServer(b *testing.B, db *spindletest.Database, answer time.Duration) (addr string) {
	b.Helper()
	behind, err := grpc.NewClient("passthrough:///"+db.Host, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	b.Cleanup(func() { _ = behind.Close() })
	s := &busyServer{answer: answer, behind: behind}
	server := grpc.NewServer(grpc.ForceServerCodec(asItIs{}), grpc.UnknownServiceHandler(s.serve), grpc.MaxConcurrentStreams(streams))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	go func() { _ = server.Serve(ln) }()
	b.Cleanup(server.Stop)
	return ln.Addr().String()
}

func (s *busyServer) serve(_ any, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	var request []byte
	if err := in.RecvMsg(&request); err != nil {
		return err
	}
	if method == commit && bytes.Contains(request, []byte(application)) {
		return s.commit(in)
	}
	md, _ := metadata.FromIncomingContext(in.Context())
	out, err := s.behind.NewStream(metadata.NewOutgoingContext(in.Context(), md),
		&grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodec(asItIs{}))
	if err == nil {
		err = out.SendMsg(&request)
	}
	if err == nil {
		err = out.CloseSend()
	}
	for err == nil {
		var reply []byte
		if err = out.RecvMsg(&reply); err == nil {
			err = in.SendMsg(&reply)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *busyServer) commit(in grpc.ServerStream) error {
	select {
	case <-time.After(s.answer):
	case <-in.Context().Done():
	}
	reply, err := proto.Marshal(&sppb.CommitResponse{CommitTimestamp: timestamppb.Now()})
	if err != nil {
		return err
	}
	return in.SendMsg(&reply)
}

// asItIs leaves messages encoded.
type asItIs struct{}

func (asItIs) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (asItIs) Unmarshal(data []byte, v any) error { *v.(*[]byte) = slices.Clone(data); return nil }
func (asItIs) Name() string                       { return "proto" }

// latencies has the durations of a client's heartbeats.
type latencies struct {
	mu  sync.Mutex
	all []float64 // in ms
}

func (l *latencies) timed() option.ClientOption {
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			start := time.Now()
			err := invoke(ctx, method, req, reply, cc, opts...)
			if r, ok := req.(*sppb.CommitRequest); ok && r.GetRequestOptions().GetTransactionTag() == "spindle-heartbeat" {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.all = append(l.all, time.Since(start).Seconds()*1000)
			}
			return err
		}))
}

func (l *latencies) report(b *testing.B) {
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NotEmpty(b, l.all)
	slices.Sort(l.all)
	b.ReportMetric(l.all[len(l.all)/2], "p50-ms")
	b.ReportMetric(l.all[len(l.all)*99/100], "p99-ms")
	b.ReportMetric(l.all[len(l.all)-1], "max-ms")
	b.ReportMetric(float64(len(l.all)), "beats")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHeartbeatUnderLoad measures how long heartbeats take while the application has many transactions in flight,
// each of 10 KB and with a response after 100 ms. The application uses the locks' client or a different one. Each
// iteration takes one lease.
func BenchmarkHeartbeatUnderLoad(b *testing.B) {
	for _, load := range []int{0, 200, 350, 1000} {
		for _, client := range []string{"same", "own"} {
			b.Run(fmt.Sprintf("%dtransactions/%sclient", load, client), func(b *testing.B) { heartbeatUnderLoad(b, load, client == "same") })
		}
	}
}

func heartbeatUnderLoad(b *testing.B, load int, same bool) {
	db := spindletest.New(b)
	addr := option.WithEndpoint("passthrough:///" + newBusyServer(b, db, 100*time.Millisecond))
	var beats latencies
	client := connect(b, db, append(spindle.ClientOptions(benchLease), addr, beats.timed())...)
	busy := client
	if !same {
		busy = connect(b, db, addr)
	}
	for i := range 10 {
		l := spindle.New(client, db.Table, fmt.Sprint("lock-", i), spindle.WithLease(benchLease), spindle.WithHeartbeat(50*time.Millisecond), quiet)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		require.NoError(b, l.Run(ctx, done))
		b.Cleanup(func() { cancel(); require.NoError(b, <-done) })
		eventually(b, 10*time.Second, "election", func() bool { ok, _ := l.HasLock(); return ok })
	}
	var working sync.WaitGroup
	stop := make(chan struct{})
	write := []*spanner.Mutation{spanner.Update("anything", []string{"id", "text"}, []any{1, strings.Repeat("x", 10<<10)})}
	for range load {
		working.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := busy.Apply(context.Background(), write, spanner.ApplyAtLeastOnce(), spanner.TransactionTag(application)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	time.Sleep(benchLease) // wait until the load has built up
	beats.mu.Lock()
	beats.all = nil
	beats.mu.Unlock()
	b.ResetTimer()
	for b.Loop() {
		time.Sleep(benchLease)
	}
	beats.report(b)
	close(stop)
	working.Wait()
}
