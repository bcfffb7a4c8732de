package group

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Health returns nil as long as this member gets on: its last look at the group that succeeded is younger than three
// leases, or 10 s if that is longer, and no work keeps its partition for that long after it was told to stop. So a member
// that stands by without a partition is healthy, and a short outage of Spanner makes nobody unhealthy. Time in
// which the machine was suspended, or the member rests because its terms ended soon, does not count. Otherwise, and
// before Run and after it has ended, the error says what is wrong and since when.
//
// It is local: no RPC. It may be called from any goroutine.
func (g *Group) Health() error {
	if g.err != nil {
		return g.err
	}
	age, runs := g.pulse.Age(g.config.Clock)
	if !runs {
		return g.wrap("health", errors.New("it is not in the group: Run was not called, or has ended"))
	}
	err := g.pulse.Check(g.config.Clock, g.config.Lease, age, "no look at the group has succeeded")
	if h := g.stuck.Load(); err == nil && h != nil {
		what := fmt.Sprintf("the work of partition %q has not returned, though it was told to,", h.name)
		err = g.pulse.Check(g.config.Clock, g.config.Lease, g.config.Clock.Now().Ran(h.since), what)
	}
	if err != nil {
		return g.wrap("health", err)
	}
	return nil
}

// Live is Health in the form of a probe: spindle.Probe(g.Live) is an http.Handler. It is for liveness: a restart mends
// work that hangs, at the price that the member's other partitions move too, and a Spanner client that has lost its session.
func (g *Group) Live(*http.Request) error { return g.Health() }

// remind says what keeps partitions from moving: after a lease, and each time that it has taken twice as long.
func (m *member) remind() {
	var oldest *holding
	n, now := 0, m.config.Clock.Now()
	for _, s := range m.shares {
		if h := s.busy; h != nil && h.told && now.Ran(h.since) >= m.config.Lease {
			n++
			if oldest == nil || now.Ran(h.since) > now.Ran(oldest.since) {
				oldest = h
			}
		}
	}
	m.stuck.Store(oldest)
	if n == 0 {
		m.reminded = 0
		return
	}
	if waited := now.Ran(oldest.since); waited >= 2*m.reminded {
		m.reminded = waited
		m.log.Warn("work has not returned since it was told to: its partition can't move, nor come back", "partition", oldest.name, "waited", waited.Round(time.Millisecond), "partitions", n)
	}
}
