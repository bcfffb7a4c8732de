package spindle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

// The timing of a connection depends on the lease. A short lease does not cause a ping or an attempt to which a slow
// network cannot respond. With a long lease, a connection waits no longer than without these options, or 20 s.
func TestAConnectionGoesByTheLeaseWithinBounds(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ third, ping, answer, first, longest, connect time.Duration }{
		{third: 33 * ms, ping: 10 * time.Second, answer: time.Second, first: 50 * ms, longest: 100 * ms, connect: 5 * time.Second},
		{third: 8 * time.Second, ping: 10 * time.Second, answer: 8 * time.Second, first: 800 * ms, longest: 8 * time.Second, connect: 8 * time.Second},
		{third: time.Minute, ping: time.Minute, answer: 20 * time.Second, first: time.Second, longest: 20 * time.Second, connect: 20 * time.Second},
		{third: 8 * time.Hour, ping: 2 * time.Minute, answer: 20 * time.Second, first: time.Second, longest: 20 * time.Second, connect: 20 * time.Second},
	} {
		assert.Equal(t, keepalive.ClientParameters{Time: c.ping, Timeout: c.answer}, keepaliveWithin(c.third), c.third)
		pauses := backoff.Config{BaseDelay: c.first, Multiplier: 1.6, Jitter: 0.2, MaxDelay: c.longest}
		assert.Equal(t, grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: c.connect}, reconnectWithin(c.third), c.third)
	}
}
