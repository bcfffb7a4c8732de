package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
