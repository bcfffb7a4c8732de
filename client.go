package spindle

import (
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/spindle-lock/spindle/internal/options"
)

// ClientOptions returns options for spanner.NewClient; put them after your own. Lease is the shortest lease that the
// client is used with; 0 means the default lease. Without these options, a client takes up to two and a half minutes to
// give up a connection that a NAT or a firewall has forgotten, and may wait two minutes after an outage before it
// reconnects. A lock has no holder for that long.
//
// With them, the client closes a dead connection
//   - on Linux, once sent data was not acknowledged for a third of the lease, but at least a second;
//   - elsewhere, or if a proxy acknowledges for the server, once a call waits, nothing was read for 10 s (or a
//     third of the lease, if that is longer), and a ping was not answered for a third of the lease.
//
// It retries a connection at least every third of the lease. Nothing else about the client changes.
//
// Idle connections are not pinged. A strict server, such as the emulator, closes a connection if a call on it is silent
// for most of a minute. Make such calls, for example long queries, with another client.
func ClientOptions(lease time.Duration) []option.ClientOption {
	if lease <= 0 {
		lease = options.DefaultLease
	}
	third := lease / 3 // a heartbeat that needs a new connection still comes in time
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepaliveWithin(third))),
		option.WithGRPCDialOption(grpc.WithConnectParams(reconnectWithin(third))),
	}
}

// keepaliveWithin closes a dead connection in about d. Time is how long nothing was read; gRPC allows no less than 10
// s. Timeout is for the answer to a ping; gRPC sets TCP_USER_TIMEOUT to it. The Spanner client has 2 min and 20 s.
func keepaliveWithin(d time.Duration) keepalive.ClientParameters {
	return keepalive.ClientParameters{
		Time:    within(d, 10*time.Second, 2*time.Minute),
		Timeout: within(d, time.Second, 20*time.Second),
	}
}

// reconnectWithin retries a connection every d. The load is about a candidate's reads. A handshake that loses a packet
// twice must succeed within MinConnectTimeout, because the next attempt is given no more.
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
