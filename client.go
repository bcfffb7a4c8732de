package spindle

import (
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/spindle-lock/spindle/internal/options"
)

// ClientOptions returns options for spanner.NewClient that make the client replace broken connections quickly. Append
// them to your own options. The lease argument is the shortest lease of all locks that use the client; 0 means the
// default lease. Without these options, a client takes up to two and a half minutes to give up a connection that a NAT
// gateway or firewall has forgotten, and may wait two minutes after an outage before it reconnects. During that time, a
// lock may have no holder.
//
// With these options, the client closes a dead connection:
//   - on Linux, when data that it sent has not been acknowledged for a third of the lease, or for one second if that is
//     longer;
//   - on other systems, or if a proxy acknowledges data for the server, when a call is waiting, nothing has been read
//     for 10 s (or a third of the lease, if that is longer), and a ping then goes unanswered for a third of the lease.
//
// It tries to reconnect at least once every third of the lease. Nothing else about the client changes.
//
// Idle connections are not pinged. A strict server, such as the emulator, closes a connection if a call on it is silent
// for most of a minute. Use a separate client for such calls, for example for long queries.
func ClientOptions(lease time.Duration) []option.ClientOption {
	if lease <= 0 {
		lease = options.DefaultLease
	}
	third := lease / 3 // soon enough for a heartbeat that needs a new connection
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepaliveWithin(third))),
		option.WithGRPCDialOption(grpc.WithConnectParams(reconnectWithin(third))),
	}
}

// keepaliveWithin returns parameters that close a dead connection after about d. Time is how long a connection may be
// silent before it is pinged, and gRPC allows no less than 10 s. Timeout is how long to wait for the answer; gRPC also
// uses it as TCP_USER_TIMEOUT. The Spanner client's own values are 2 min and 20 s.
func keepaliveWithin(d time.Duration) keepalive.ClientParameters {
	return keepalive.ClientParameters{
		Time:    within(d, 10*time.Second, 2*time.Minute),
		Timeout: within(d, time.Second, 20*time.Second),
	}
}

// reconnectWithin returns parameters that retry a connection at least every d, which puts about as much load on the
// server as a candidate's reads. MinConnectTimeout must be long enough for a handshake that loses a packet twice,
// because no later attempt gets more time.
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
