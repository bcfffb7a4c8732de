package group

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// standing is this member's health, for callers. The loop writes it.
type standing struct {
	mu       sync.Mutex
	trouble  *trouble      // the longest one; nil: none
	balanced bool          // it is a member, and has exactly the partitions that it should have
	changed  chan struct{} // closed when balanced changes
}

// trouble is something that should not last.
type trouble struct {
	what  string
	since elect.Instant
	err   error // what is in the way
}

// report records how the member is doing, in a term or between two.
func (m *member) report(t *term) {
	worst := m.trouble(t)
	balanced := t != nil && t.balanced()
	s := &m.standing
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = worst
	if s.balanced == balanced {
		return
	}
	s.balanced = balanced
	s.wake()
}

// wake wakes callers that wait for a change. s.mu is held.
func (s *standing) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// end wakes callers that wait in vain: Run has ended.
func (s *standing) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.balanced, s.trouble = false, nil
	s.wake()
}

// trouble returns what has been wrong for the longest time.
func (m *member) trouble(t *term) (worst *trouble) {
	note := func(what string, since elect.Instant, err error) {
		if since != (elect.Instant{}) && (worst == nil || since.Mono < worst.since.Mono) {
			worst = &trouble{what, since, err}
		}
	}
	note("it is not in the group", m.out, m.failing)
	if t != nil && (t.progress.sick() || m.inventory.held.Load() == 0) {
		note("no partition could be claimed or released", t.progress.since, t.progress.err)
	}
	for _, e := range m.inventory.suspects {
		note(fmt.Sprintf("partition %q could not be claimed or released", e.name), e.suspect.since, e.suspect.err)
	}
	return worst
}

// balanced reports whether the member has the partitions that it should have, and no others.
func (t *term) balanced() bool {
	if !t.planning.planned() || !t.planning.counts() || !t.planning.differs.IsZero() || t.leaving() {
		return false
	}
	for _, e := range t.m.inventory.all {
		if e.state == free && (!e.target || e.paused) || e.state == held && e.target {
			continue
		}
		return false
	}
	return true
}

// Balanced blocks until this member has exactly the partitions that it should have, by its last look: it is in the
// group, it has claimed its share, and none of it is about to move. It fails once ctx has ended, or if Run was not
// called or has ended. Paused partitions don't count. Balanced makes no RPC.
func (g *Group) Balanced(ctx context.Context) error {
	if g.err != nil {
		return g.err
	}
	for {
		g.standing.mu.Lock()
		if !g.runs.Going() { // what ends it takes the lock after that
			g.standing.mu.Unlock()
			return g.wrap("balanced", errNotRunning)
		}
		if g.standing.balanced {
			g.standing.mu.Unlock()
			return nil
		}
		if g.standing.changed == nil {
			g.standing.changed = make(chan struct{})
		}
		changed := g.standing.changed
		g.standing.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return g.wrap("balanced", context.Cause(ctx))
		}
	}
}

var errNotRunning = errors.New("it is not in the group: Run was not called, or has ended")

// Health returns nil as long as this member works as it should. Otherwise the error says what is wrong, since when, and
// what the last obstacle was. It returns an error if, for three leases, or 10 s if that is longer,
//
//   - no look at the group has succeeded,
//   - the member is not in the group: it can't join, or cools down because it was of no use,
//   - a partition assigned to it could not be claimed or released,
//   - or work has not returned since its context was canceled.
//
// So a member on standby, without a partition, is healthy, and a short outage of Spanner makes nobody unhealthy. Time
// in which the machine was suspended does not count. Before Run and after it has ended, Health returns an error.
//
// Health is local: no RPC. It may be called from any goroutine.
func (g *Group) Health() error {
	if err := g.Live(nil); err != nil || g.err != nil {
		return err
	}
	g.standing.mu.Lock()
	t := g.standing.trouble
	g.standing.mu.Unlock()
	if t == nil {
		return nil
	}
	err := g.runs.Check(g.config.Clock, g.config.Lease, g.config.Clock.Now().Ran(t.since), t.what)
	if err == nil {
		return nil
	}
	if t.err != nil {
		err = fmt.Errorf("%w: %w", err, t.err)
	}
	return g.wrap("health", err)
}

// Live is a liveness probe: spindle.Probe(g.Live) is an http.Handler. It fails only for what a restart may mend: looks
// that don't succeed, as with a Spanner client that has lost its session, and work that hangs, although a restart moves
// the member's other partitions too. It ignores its argument, makes no RPC, and may be called from any goroutine.
func (g *Group) Live(*http.Request) error {
	if g.err != nil {
		return g.err
	}
	age, runs := g.runs.Age(g.config.Clock)
	if !runs {
		return g.wrap("health", errNotRunning)
	}
	err := g.runs.Check(g.config.Clock, g.config.Lease, age, "no look at the group has succeeded")
	if a := g.stuck.Load(); err == nil && a != nil {
		what := fmt.Sprintf("the work of partition %q has not returned, though its context was canceled,", a.name)
		err = g.runs.Check(g.config.Clock, g.config.Lease, g.config.Clock.Now().Ran(a.since), what)
	}
	if err != nil {
		return g.wrap("health", err)
	}
	return nil
}

// remind logs what keeps partitions from moving: after a lease, and each time the wait has doubled.
func (m *member) remind() {
	var oldest *assignment
	n, now := 0, m.config.Clock.Now()
	for _, e := range m.inventory.all {
		if a := e.busy; a != nil && a.since != (elect.Instant{}) && now.Ran(a.since) >= m.config.Lease {
			n++
			if oldest == nil || now.Ran(a.since) > now.Ran(oldest.since) {
				oldest = a
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
		m.log.Warn("work has not returned since its context was canceled: its partition can't move, nor come back", "partition", oldest.name, "waited", waited.Round(time.Millisecond), "partitions", n)
	}
}
