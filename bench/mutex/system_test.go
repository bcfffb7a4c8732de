package mutex

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// lease is spindle's default lease, and the TTL of etcd's sessions.
const lease = 10 * time.Second

var quiet = spindle.WithLogger(slog.New(slog.DiscardHandler))

// A server tells a worker how to connect to its locks.
type server struct {
	System string // spindle or etcd
	At     string // a database path, or an etcd endpoint
	Table  string
	Host   string // the emulator's host:port
}

var systems = []struct {
	name  string
	start func(*testing.B) server
}{{"spindle", startSpindle}, {"etcd", startEtcd}}

func startSpindle(b *testing.B) server {
	db := spindletest.New(b, spindletest.Private())
	return server{System: "spindle", At: db.Path, Table: db.Table, Host: db.Host}
}

func startEtcd(b *testing.B) server {
	etcd := startWorker(b, work{Kind: "etcd", Dir: b.TempDir()})
	return server{System: "etcd", At: etcd.hear(b).Endpoint}
}

// A client creates locks and counts their RPCs.
type client struct {
	server
	spanner *spanner.Client
	etcd    *clientv3.Client
	rpcs    atomic.Int64
}

func (s server) connect() (*client, error) {
	c := &client{server: s}
	var err error
	if s.System == "etcd" {
		c.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{s.At}, DialOptions: c.counted(), Logger: zap.NewNop()})
		return c, err
	}
	// The Spanner client takes the emulator's address only from the environment.
	if err := os.Setenv("SPANNER_EMULATOR_HOST", s.Host); err != nil {
		return nil, err
	}
	opts := spindle.ClientOptions(lease)
	for _, counted := range c.counted() {
		opts = append(opts, option.WithGRPCDialOption(counted))
	}
	c.spanner, err = spanner.NewClientWithConfig(context.Background(), s.At, spanner.ClientConfig{DisableNativeMetrics: true}, opts...)
	return c, err
}

func (c *client) counted() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			c.rpcs.Add(1)
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			c.rpcs.Add(1)
			return stream(ctx, desc, cc, method, opts...)
		}),
	}
}

// A locker is a mutex of spindle or etcd.
type locker interface {
	Lock(context.Context) error
	Unlock(context.Context) error
}

// mutex returns a mutex for one goroutine. On etcd, each mutex gets its own session, because mutexes in the same
// session do not exclude each other.
func (c *client) mutex(name string) (locker, error) {
	if c.System == "spindle" {
		return lock.New(c.spanner, c.Table, name, quiet), nil
	}
	session, err := concurrency.NewSession(c.etcd, concurrency.WithTTL(int(lease.Seconds())))
	if err != nil {
		return nil, err
	}
	return concurrency.NewMutex(session, name), nil
}

func (c *client) close() {
	if c.spanner != nil {
		c.spanner.Close()
		return
	}
	_ = c.etcd.Close()
}

func mustConnect(b *testing.B, s server) *client {
	b.Helper()
	c, err := s.connect()
	require.NoError(b, err)
	b.Cleanup(c.close)
	return c
}
