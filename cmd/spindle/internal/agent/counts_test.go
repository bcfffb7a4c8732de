package agent

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

var ownMetrics = regexp.MustCompile(`(?m)^spindle_agent_.*`)

// counted returns the agent's metrics, as root reads them.
func (b *bed) counted() []string {
	return ownMetrics.FindAllString(b.metrics("root"), -1)
}

// Every state and every outcome has its number from the start, also if it is 0: an alert on an increase needs a number to start from.
// Each hold is counted in the state that it has, each end once, and a lock is held only while its program may act.
func TestTheMetricsCountEveryHoldInItsState(t *testing.T) {
	counts := func(t *testing.T, b *bed, held []string, counts map[string]int) {
		var want []string
		for _, name := range held {
			want = append(want, fmt.Sprintf(`spindle_agent_held{spindle_lock="%s"} 1`, name))
		}
		for _, state := range []string{"held", "orphaned", "releasing", "stopping", "waiting"} {
			want = append(want, fmt.Sprintf(`spindle_agent_holds{state="%s"} %d`, state, counts[state]))
		}
		for _, outcome := range []string{"lost", "refused", "released", "unknown"} {
			want = append(want, fmt.Sprintf(`spindle_agent_holds_ended_total{outcome="%s"} %d`, outcome, counts["ended "+outcome]))
		}
		assert.ElementsMatch(t, want, b.counted())
	}
	amongUsers(t, func(b *bed) {
		counts(t, b, nil, nil)
		b.take("taken")
		b.asks("p", "POST /v1/locks?name=taken&lease=1h")
		b.asks("p", "POST /v1/locks?name=a&name=b&lease=1h")
		for _, program := range []string{"p", "q"} { // which have the same lock
			b.asks(program, "POST /v1/semaphores?name=pool&slots=2&lease=1h").reads("held")
		}
		stops := b.asks("p", "POST /v1/locks?name=stops&lease=1h").reads("held")
		b.call("p", "POST /v1/holds/"+stops.Hold+"/stepdown")
		orphan := b.asks("q", "POST /v1/locks?name=orphan&lease=1h")
		orphan.reads("held")
		orphan.Conn.(*wire).exits()
		orphan.reads("lost")
		answer := make(chan struct{})
		b.before(func(step string) {
			if step == "release" {
				<-answer
			}
		})
		releases := b.asks("p2", "POST /v1/locks?name=releases&lease=1h").reads("held")
		released := b.asks("p2", "POST /v1/holds/"+releases.Hold+"/release")
		counts(t, b, []string{"a", "b", "pool", "stops"}, map[string]int{"waiting": 1, "held": 3, "stopping": 1, "orphaned": 1, "releasing": 1})
		close(answer)
		released.wait()
		b.asks("p2", "POST /v1/locks?name=taken&lease=1h&wait=1s").reads("timeout")
		lost := b.asks("p2", "POST /v1/locks?name=lost&lease=1s")
		b.breaks(lost.reads("held"))
		lost.reads("lost")
		unknown := b.asks("p2", "POST /v1/locks?name=unknown&lease=1s").reads("held")
		b.link.Refuse(fleet.Refusing("release", memstore.ErrCut))
		status, j := b.call("p2", "POST /v1/holds/"+unknown.Hold+"/release")
		assert.Equal(t, http.StatusAccepted, status, j)
		counts(t, b, []string{"a", "b", "pool", "stops"}, map[string]int{"waiting": 1, "held": 3, "stopping": 1, "orphaned": 1,
			"ended released": 1, "ended refused": 1, "ended lost": 1, "ended unknown": 1})
	})
}
