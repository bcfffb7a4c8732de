package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/share"
)

// standing is the health of this member, as seen by callers. The loop writes it.
type standing struct {
	mu       sync.Mutex
	trouble  *trouble      // the problem that has lasted longest; nil: none
	balanced bool          // this process is a member, and owns exactly the partitions that it should own
	changed  chan struct{} // closed at the loop's next report
	stuck    *trouble      // the work that has been overdue longest; nil: none
}

// trouble is a problem that should not last.
type trouble struct {
	what  string
	since elect.Instant
	err   error // its cause, if known
}

// report updates the member's standing. Between two terms, t is nil.
func (m *member) report(t *term) {
	var stuck *trouble
	if late := m.overdue(); late != nil {
		stuck = &trouble{what: fmt.Sprintf("the work on partition %q has been ignoring the cancellation of its context", late[0].Name), since: late[0].Busy.Since}
	}
	balanced := t != nil && t.upkeep.planning.Settled() && !t.leaving() && m.inventory.All.Settled()
	m.g.standing.set(balanced, m.trouble(t), stuck)
}

// set replaces the standing, and wakes the callers that wait for a change.
func (s *standing) set(balanced bool, worst, stuck *trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.balanced, s.trouble, s.stuck = balanced, worst, stuck
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// trouble returns the problem that has lasted longest, or nil.
func (m *member) trouble(t *term) (worst *trouble) {
	note := func(what string, since elect.Instant, err error) {
		if since != (elect.Instant{}) && (worst == nil || since.Mono < worst.since.Mono) {
			worst = &trouble{what, since, err}
		}
	}
	note("the process has not been in the group", m.out, m.failing)
	if t != nil {
		_, acted := m.inventory.All.Holds()
		note("it has been impossible to claim or release any partition", t.conduct.FailingSince(acted), t.conduct.Err)
	}
	name, suspicion := m.inventory.All.Oldest()
	note(fmt.Sprintf("partition %q has been impossible to claim or release", name), suspicion.Since, suspicion.Err)
	return worst
}

// Balanced blocks until this member owns exactly the partitions that it should own. This is the case if, according to
// its last poll of the group, this process is in the group, has claimed all partitions that are assigned to it, and has
// none that are about to move. Paused partitions do not have to be claimed.
//
// Balanced returns an error if ctx ends, if Run was not called, or if Run has ended. It makes no RPC.
func (g *Group) Balanced(ctx context.Context) error {
	if g.err != nil {
		return g.err
	}
	for {
		g.standing.mu.Lock()
		if !g.runs.Going() { // member.run sets the standing after Going has become false
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

var errNotRunning = errors.New("the process is not in the group, because Run was not called or has ended")

// Health returns nil as long as this member works properly. Otherwise, it returns an error that states the problem, its
// most recent cause, and when it began. A problem counts once it has lasted for three lease durations or for 10 s,
// whichever is longer. The problems are:
//
//   - No poll of the group has succeeded.
//   - The process is not in the group. Either it cannot join, or it stays out for a while because its terms have ended
//     early.
//   - A partition could not be claimed or released.
//   - Work has not returned after its context was canceled.
//
// Time during which the machine was suspended does not count. Before Run is called and after Run has ended, Health
// returns an error. Health makes no RPC.
func (g *Group) Health() error {
	if err := g.Live(nil); err != nil {
		return err
	}
	g.standing.mu.Lock()
	t := g.standing.trouble
	g.standing.mu.Unlock()
	return g.check(t)
}

// check returns an error if the trouble has lasted for too long.
func (g *Group) check(t *trouble) error {
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

// Live is a liveness probe. To turn it into an http.Handler, call spindle.Probe(g.Live). While the member is running,
// Live returns an error only if a restart of the process may help. A restart may help if work hangs. It may also help
// if polls of the group fail, for example because the Spanner client has lost its session. A restart may move all
// partitions of the member, not only the partition whose work hangs. Live ignores its argument and makes no RPC.
func (g *Group) Live(*http.Request) error {
	if g.err != nil {
		return g.err
	}
	age, runs := g.runs.Age(g.config.Clock)
	if !runs {
		return g.wrap("health", errNotRunning)
	}
	if err := g.runs.Check(g.config.Clock, g.config.Lease, age, "no poll of the group has succeeded"); err != nil {
		return g.wrap("health", err)
	}
	g.standing.mu.Lock()
	t := g.standing.stuck
	g.standing.mu.Unlock()
	return g.check(t)
}

// overdue returns the partitions with overdue work (see share.Entries.Overdue).
func (m *member) overdue() share.Entries {
	return m.inventory.All.Overdue(m.g.config.Clock.Now(), m.g.config.Lease)
}

// remind logs a warning about overdue work, because the work keeps its partition from moving. The first warning comes
// after one lease duration, and another follows each time the wait has doubled. If several are due at the same time,
// remind logs only the one about the work that has been overdue longest.
func (m *member) remind() {
	now, late := m.g.config.Clock.Now(), m.overdue()
	var first *share.Entry
	for _, e := range late {
		if waited := now.Ran(e.Busy.Since); waited >= 2*e.Busy.Reminded {
			e.Busy.Reminded, first = waited, cmp.Or(first, e)
		}
	}
	if first != nil {
		m.voice.log.Warn("work has not returned after its context was canceled; until it returns, this member can't claim the partition again, and releases it only if LetGo is called", "partition", first.Name, "waited", first.Busy.Reminded.Round(time.Millisecond), "partitions", len(late))
	}
}
