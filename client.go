package spindle

import (
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/spindle-lock/spindle/internal/options"
)

// ClientOptions are what to give to spanner.NewClient, after options of one's own, for a client whose
// shortest lease is this one; 0 stands for the default lease. Without them a client takes up to two and a
// half minutes to give up a connection that a NAT or a firewall has forgotten, and after an outage it
// may wait two minutes before it connects again, and a lock has no holder for as long.
//
// With them, a connection is closed once what was sent over it was not acknowledged for a third of the
// lease, a second at least, where the operating system can tell (Linux); and elsewhere, and where
// somebody between acknowledges in the server's name, once a call has waited on it, nothing was read from
// it for 10 s, and a ping was not answered in as long. A new connection is tried each third of the lease, or
// more often, until there is one. They change nothing else of the client.
//
// An idle connection is not pinged, nor one over which something is read every 10 s. Calls of locks are
// never silent for longer than that. A server that allows gRPC's least number of pings, as the emulator
// does, closes a connection on which another call is silent for most of a minute: make such calls, of a
// long query say, with another client.
func ClientOptions(lease time.Duration) []option.ClientOption {
	if lease <= 0 {
		lease = options.DefaultLease
	}
	third := lease / 3 // a heartbeat that needs a new connection still comes in time
	return []option.ClientOption{
		// Time is without a read, and no less is allowed; Timeout is for the answer of a ping, and gRPC
		// sets TCP_USER_TIMEOUT to it. The Spanner client has 2 min and 20 s.
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:    within(third, 10*time.Second, 2*time.Minute),
			Timeout: within(third, time.Second, 20*time.Second),
		})),
		// The load is that of a candidate's reads. A handshake of which a packet is lost twice has to
		// succeed in MinConnectTimeout, as the next attempt is given no more.
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  within(third/10, 50*time.Millisecond, time.Second),
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   within(third, 100*time.Millisecond, 20*time.Second),
			},
			MinConnectTimeout: within(third, 5*time.Second, 20*time.Second),
		})),
	}
}

// within is d, but at least low and at most high.
func within(d, low, high time.Duration) time.Duration { return max(low, min(d, high)) }
