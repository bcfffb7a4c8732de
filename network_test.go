//go:build unix

package spindle_test

import (
	"context"
	"net"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/network"
	"github.com/spindle-lock/spindle/spindletest"
)

// suited is a client with one connection, through way, whose options suit the lease.
func suited(t *testing.T, db *spindletest.Database, way *network.Link, opts ...option.ClientOption) *spanner.Client {
	opts = append(opts, option.WithEndpoint(way.Addr()), option.WithGRPCConnectionPool(1))
	return connect(t, db, append(opts, spindle.ClientOptions(lease)...)...)
}

// Connections that a NAT has forgotten do not keep a lock without a holder while new connections work. They are
// replaced 10 s after the last response, which is the minimum that gRPC allows, plus the time in which a ping may be
// answered.
func TestForgottenConnectionsAreReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
	db := spindletest.New(t)
	way := newLink(t, db)
	l := stand(t, suited(t, db, way), db)
	eventually(t, 10*time.Second, "election", l.has)
	way.Forget()
	eventually(t, 2*lease, "stepping down", func() bool { return !l.has() })
	eventually(t, 20*time.Second, "a holder again, over a new connection", l.has)
}

// However long Spanner was unavailable, a client tries to connect every third of its lease, so a lock has a holder soon
// after the outage.
func TestALongOutageDoesNotDelayTheNextConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
	db := spindletest.New(t)
	way := newLink(t, db)
	dialed := make(chan time.Time, 100)
	l := stand(t, suited(t, db, way, option.WithGRPCDialOption(grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		dialed <- time.Now()
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}))), db)
	eventually(t, 10*time.Second, "election", l.has)
	<-dialed
	way.Cut()
	last := time.Now()
	for range 8 {
		select {
		case at := <-dialed:
			require.Less(t, at.Sub(last), 2*lease, "between two attempts to connect")
			last = at
		case <-time.After(2 * lease):
			require.FailNow(t, "no attempt to connect")
		}
	}
	way.Mend()
	eventually(t, 3*lease, "a holder again", l.has)
}
