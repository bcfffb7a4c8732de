package spindle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// Open returns a Spanner client for locks. The database is a path of the form projects/P/instances/I/databases/D. Open
// passes ClientOptions(0) and then opts to spanner.NewClient. Use opts for credentials, or for ClientOptions(lease) if
// a lock has a shorter lease than the default. The client outlives ctx, because it has to release the locks after ctx
// has ended. Close the client once the locks have been released.
//
// Locks also work with any other client, such as the one that the application uses. But if a client has many calls in
// progress, heartbeats may have to wait behind them; see docs/performance.md.
func Open(ctx context.Context, database string, opts ...option.ClientOption) (*spanner.Client, error) {
	if database == "" {
		return nil, errors.New("spindle: open: the path of the database is empty; pass projects/P/instances/I/databases/D, or set the variable that should contain the path")
	}
	db, err := spanner.NewClient(context.WithoutCancel(ctx), database, append(ClientOptions(0), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("spindle: open %.256q: %w", database, err)
	}
	return db, nil
}

// ClientOptions returns options for spanner.NewClient that make the client replace broken connections quickly. Open
// passes these options. If you call NewClient yourself, append them to your own. The argument is the shortest lease of
// the locks that use the client; 0 means the default lease.
//
// Without these options, a lock can be without a holder for minutes. If a NAT gateway or a firewall silently drops a
// connection, the client takes up to two and a half minutes to notice. After an outage, it may wait for up to two
// minutes before it tries to reconnect.
//
// With these options, the client detects a dead connection in one of two ways:
//   - On Linux, the client closes a connection when data that it sent has not been acknowledged for a third of the
//     lease.
//   - On other systems, or behind a proxy that acknowledges data itself, the client pings the server when a call is
//     waiting and nothing has been read for 10 s, or for a third of the lease if that is longer. It closes the
//     connection if the server does not answer within a third of the lease.
//
// After a failed attempt to reconnect, the client waits for at most about a third of the lease. An attempt that gets no
// response fails after 5 s, or after a third of the lease if that is longer.
//
// These times have limits, whatever the lease is. The client waits 1 to 20 s for an acknowledgment or an answer, and at
// most two minutes before a ping. An attempt to reconnect takes at most about 20 s, and so does the pause after it.
//
// The client also remembers the last outage that Spanner reported for each request of a lock. If the request's deadline
// passes while the client retries it, the error includes that report, such as RESOURCE_EXHAUSTED. Without these
// options, the error may be only DEADLINE_EXCEEDED. Nothing else about the client changes.
//
// Idle connections are not pinged. A server that limits pings, such as the emulator, closes a connection on which a
// call has been silent for most of a minute. Use a separate client for such calls, for example for long queries.
func ClientOptions(lease time.Duration) []option.ClientOption {
	if lease <= 0 {
		lease = options.DefaultLease
	}
	third := lease / 3 // soon enough for a heartbeat that needs a new connection
	opts := []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepaliveWithin(third))),
		option.WithGRPCDialOption(grpc.WithConnectParams(reconnectWithin(third))),
	}
	for _, o := range table.DialOptions() {
		opts = append(opts, option.WithGRPCDialOption(o))
	}
	return opts
}

// keepaliveWithin returns parameters with which Linux closes a dead connection after about d. Time is how long a
// connection may be silent before it is pinged; gRPC allows no less than 10 s. Timeout is how long to wait for the
// answer; gRPC also uses it as TCP_USER_TIMEOUT. The Spanner client's own values are 2 min and 20 s.
func keepaliveWithin(d time.Duration) keepalive.ClientParameters {
	return keepalive.ClientParameters{
		Time:    within(d, 10*time.Second, 2*time.Minute),
		Timeout: within(d, time.Second, 20*time.Second),
	}
}

// reconnectWithin returns parameters with which a client waits for about d, or less, between two attempts to reconnect.
// The attempts put about as much load on the server as a candidate's reads. MinConnectTimeout limits every attempt, so
// it must be long enough for a handshake that loses two packets.
func reconnectWithin(d time.Duration) grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay:  within(d/10, 50*time.Millisecond, time.Second),
			Multiplier: 1.6,
			Jitter:     0.2,
			MaxDelay:   within(d, 100*time.Millisecond, 20*time.Second),
		},
		MinConnectTimeout: within(d, 5*time.Second, 20*time.Second),
	}
}

// within clamps d between low and high.
func within(d, low, high time.Duration) time.Duration { return max(low, min(d, high)) }
