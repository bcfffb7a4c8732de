package group

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
)

// lanes is the maximum number of commits that claim or reconcile partitions at the same time.
const lanes = 4

// commit is a set of partitions that are claimed or reconciled together. If the commit fails, each half of the set is
// tried separately, so that one partition does not block the others. The exception is a commit that failed because
// another member had already changed the rows.
type commit struct {
	rows  []table.Observation // sorted by name, as the last poll read them
	frees bool                // true: reconciles the partitions; false: claims them
	ready elect.Pause         // the wait before it may start
}

func (c *commit) entries(v *share.Inventory) (entries []*share.Entry) {
	for _, o := range c.rows {
		entries = append(entries, v.Of(o.Name))
	}
	return entries
}

// add queues a commit. Smaller commits go first, because they may be halves of failed ones.
func (m *moves) add(rows []table.Observation, frees bool, after time.Duration) {
	c := &commit{slices.Clone(rows), frees, elect.PauseFor(m.t.polls.clock, after)}
	slices.SortFunc(c.rows, func(a, b table.Observation) int { return cmp.Compare(a.Name, b.Name) })
	i, _ := slices.BinarySearchFunc(m.queue, len(rows)+1, func(q *commit, n int) int { return len(q.rows) - n })
	m.queue = slices.Insert(m.queue, i, c)
}

// split queues the two halves of a failed commit.
func (m *moves) split(c *commit, after time.Duration) {
	if c.frees {
		m.t.m.inventory.Reconcile(c.rows, len(c.rows))
	}
	half := (len(c.rows) + 1) / 2
	m.add(c.rows[:half], c.frees, after)
	m.add(c.rows[half:], c.frees, after)
}

// dispatch starts queued commits whose wait has ended, as many as width allows. From each commit, it first removes the
// partitions that must no longer be claimed.
func (m *moves) dispatch() {
	for m.under < m.width() {
		i := slices.IndexFunc(m.queue, func(c *commit) bool { return c.ready.Left(m.t.polls.clock) <= 0 })
		if i < 0 {
			return
		}
		c := m.queue[i]
		m.queue = slices.Delete(m.queue, i, i+1)
		c.rows = slices.DeleteFunc(c.rows, func(o table.Observation) bool {
			return !m.t.m.inventory.Sends(o.Name, m.t.acts() && !m.t.leaving())
		})
		if len(c.rows) > 0 {
			m.start(c)
		}
	}
}

func (m *moves) start(c *commit) {
	m.under++
	do(m.t.send, 2*m.t.send.commitLimit(), func(ctx context.Context) (result, error) {
		return m.t.send.commit(ctx, c)
	}, func(r result, err error) {
		m.under--
		if m.single && err != nil {
			m.paused = elect.PauseFor(m.t.polls.clock, m.pause.Pause(m.t.polls.clock))
		}
		switch {
		case c.frees:
			m.reconciled(c, err)
		case err != nil:
			m.failed(c, err)
		default:
			m.claimed(c, r)
		}
	})
}

// width returns the number of commits that may run at the same time.
func (m *moves) width() int {
	clock := m.t.polls.clock
	switch {
	case m.paused.Left(clock) > 0:
		return 0
	case m.single, m.crowded.Left(clock) > 0:
		return 1
	}
	return lanes
}

// left returns the time until a queued commit can be started.
func (m *moves) left() time.Duration {
	if len(m.queue) == 0 || m.under > 0 && m.under >= m.width() {
		return never
	}
	clock, soonest := m.t.polls.clock, never
	for _, c := range m.queue {
		soonest = min(soonest, c.ready.Left(clock))
	}
	return max(soonest, m.paused.Left(clock))
}

// slow turns on or off the mode in which commits run one at a time, with a pause after each failure.
func (m *moves) slow(single bool) {
	if m.single = single; !single {
		m.paused = elect.Pause{}
		m.pause.Reset()
	}
}
