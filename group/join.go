package group

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// contest tracks how a member fares in the competition for a slot.
type contest struct {
	chosen string // the slot that the member last tried to claim
	lost   int    // how often another member was first
}

// join competes for a slot until it holds one, and returns the term. It returns nil once ctx has ended.
func (m *member) join(ctx context.Context) *elect.Term {
	m.candidate = m.candidate.Again()
	m.candidate.LeaseRecord.Trial = m.fitness.Trial
	var c contest
	for ctx.Err() == nil {
		step, err := m.tryJoin(ctx, &c)
		switch {
		case step.Term != nil:
			m.memory.Last, m.out = table.LeaseRef{Name: step.Term.Names()[0], Token: step.Term.Token()}, elect.Instant{}
			return step.Term
		case ctx.Err() != nil:
			return nil
		case err != nil:
			m.voice.problems.Note(fmt.Errorf("join: %w", err))
			m.failing = fmt.Errorf("join: %w", err)
		}
		m.sleep(ctx, step.Pause)
	}
	return nil
}

// tryJoin polls the slots once, and tries to claim a free one.
func (m *member) tryJoin(ctx context.Context, c *contest) (elect.Step, error) {
	s, err := m.look(ctx)
	if err != nil {
		return elect.Step{Pause: min(m.g.config.Lease/10, elect.LongestPause)}, err
	}
	if m.candidate.Names = m.memory.Slots(s, m.inventory.List, m.g.config.ID, c.among()); len(m.candidate.Names) == 0 {
		return elect.Step{Pause: m.g.config.Lease / 10}, nil
	}
	step := m.candidate.Try(ctx, func(seen []elect.LockView) elect.Decision {
		chosen, found := m.choose(seen, c)
		if !found {
			return elect.Decision{Wait: m.g.config.Lease / 10}
		}
		return elect.Decision{Claim: []elect.LockView{chosen}}
	}, 0)
	m.voice.watch.Tried(step)
	return step, step.Err
}

// choose returns the slot to claim, or false if no slot is free. With WithReclaim, its first choice is the slot of a
// member that has this process's ID, unless its heartbeats failed there and others go first. Its next choice is the slot that this process had last, if that slot is free and
// no other member was faster. After that come the free slots below a slot in use, the highest first, and then the slots
// above all slots in use, the lowest first. Each time another member is faster, choose picks at random from more of
// these slots (see among).
//
// A free slot below a slot in use belonged to a member that has left or died. The new process is probably that member's
// replacement, and it inherits the partitions that are assigned to the slot.
func (m *member) choose(seen []elect.LockView, c *contest) (elect.LockView, bool) {
	m.candidate.LeaseRecord.Since = 0
	top := -1
	for i, s := range seen {
		if m.g.config.Reclaim && s.Exists && !s.Heartbeat.IsZero() && s.Holder() == m.g.config.ID && s.FreeIn <= 0 {
			if s.LeaseRecord != nil && s.LeaseRecord.ListDigest == m.inventory.List.Digest() && s.Heartbeat.Sub(s.Token.Time()) >= s.LeaseRecord.Lease { // only a term that has lasted a whole lease counts
				m.candidate.LeaseRecord.Since = plan.Since(s.Observation)
			}
			return s, true
		}
		if s.FreeIn > 0 {
			top = i
		}
		if s.Name == c.chosen && s.FreeIn > 0 && !s.Heartbeat.IsZero() && s.Writer != m.g.config.ID {
			c.lost++
			c.chosen = ""
		}
	}
	var free []elect.LockView
	for i, s := range seen {
		switch {
		case s.FreeIn > 0:
		case s.Name == m.memory.Last.Name && c.lost == 0:
			c.chosen = s.Name
			return s, true
		case i < top:
			free = slices.Insert(free, 0, s)
		default:
			free = append(free, s)
		}
	}
	if len(free) == 0 {
		return elect.LockView{}, false
	}
	s := free[m.g.config.Clock.Random(time.Duration(min(c.among(), len(free))))]
	c.chosen = s.Name
	return s, true
}

// among returns the number of free slots from which the member chooses at random. It starts at 1 to keep slot numbers
// low, because a used slot stays in the table forever. It doubles each time another member claims the chosen slot
// first, up to 256.
func (c *contest) among() int { return 1 << min(c.lost, 8) }
