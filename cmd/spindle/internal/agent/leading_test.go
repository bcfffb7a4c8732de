package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// The probe is positive for an election that one of the agent's programs leads, and for nothing else: a load balancer sends the traffic
// there.
func TestAProbeIsPositiveOnlyForAnElectionThatIsLed(t *testing.T) {
	among(t, 10, func(b *bed) {
		leads := func(name string) int { return b.asks("p", "GET /v1/leading?name="+name).wait() }
		b.take("other")
		b.asks("p", "POST /v1/locks?name=lock&lease=1s")
		b.asks("p", "POST /v1/elections?name=other&lease=1s")
		s := b.asks("p", "POST /v1/elections?name=a&lease=1s")
		id := s.reads("held").Hold
		for name, status := range map[string]int{"a": 200, "other": 503, "lock": 503, "none": 503, "": 503} {
			assert.Equal(t, status, leads(name), name)
		}
		b.call("p", "POST /v1/holds/"+id+"/stepdown")
		s.reads("stop")
		assert.Equal(t, 200, leads("a"), "it leads until it has released the lock")
		s.Conn.(*wire).exits()
		time.Sleep(longestDoubt + time.Millisecond)
		assert.Equal(t, 503, leads("a"), "its program has lost the lock")
	})
}

// The probe is negative from the end of the lease on, even if the machine was suspended, so that no timer has run yet.
func TestAProbeIsNegativeOnceTheLeaseIsOver(t *testing.T) {
	among(t, 10, func(b *bed) {
		clock := &fleet.Clock{}
		b.agent.clock, b.agent.promises.clock = clock, clock
		b.asks("p", "POST /v1/elections?name=a&lease=10s").reads("held")
		leads := func() int { return b.asks("q", "GET /v1/leading?name=a").wait() }
		assert.Equal(t, 200, leads())
		clock.Wall.Add(int64(time.Minute))
		assert.Equal(t, 503, leads())
	})
}
