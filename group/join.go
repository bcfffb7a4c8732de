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

// join competes for a slot until it has claimed one, and returns its term. It returns nil once ctx has ended.
func (m *member) join(ctx context.Context) *elect.Term {
	m.candidate = m.candidate.Again()
	m.candidate.LeaseRecord.Trial = m.fitness.trial
	var c contest
	for ctx.Err() == nil {
		step, err := m.tryJoin(ctx, &c)
		switch {
		case step.Term != nil:
			m.last, m.out = step.Term.Names()[0], elect.Instant{}
			return step.Term
		case ctx.Err() != nil:
			return nil
		case err != nil:
			m.problems.Note(fmt.Errorf("join: %w", err))
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
		return elect.Step{Pause: m.config.Lease / 10}, err
	}
	if m.candidate.Names = m.slots(s, c); len(m.candidate.Names) == 0 {
		return elect.Step{Pause: m.config.Lease / 10}, nil
	}
	step := m.candidate.Try(ctx, func(seen []elect.LockView) elect.Decision {
		chosen, found := m.choose(seen, c)
		if !found {
			return elect.Wait(m.config.Lease / 10)
		}
		return elect.Claim(chosen)
	}, 0)
	m.watch.Tried(step)
	return step, step.Err
}

// slots returns the slots that this process may try to claim. These are all slots up to a few above the highest one in
// use, except those whose members may still be acting.
func (m *member) slots(s table.GroupSnapshot, c *contest) (names []string) {
	own, _ := table.PartOf(m.last)
	top := own.Slot - 1 // considered even if all rows were deleted by hand
	for name := range s.Members {
		part, _ := table.PartOf(name)
		top = max(top, part.Slot)
	}
	if published, err := plan.Decode(s.Body, m.list); err == nil { // it may list a member in a higher slot
		for _, p := range published.Members() {
			top = max(top, p.Slot)
		}
	}
	m.learnVanished(s, top)
	for slot := range min(top+2+c.among(), table.MaxSlot+1) {
		name := table.SlotName(m.name, slot)
		if s.Unreadable[name] == nil && !m.mayAct(s.Members[name]) && !m.waitsFor(name, s.At) {
			names = append(names, name)
		}
	}
	return names
}

// mayAct reports whether o is the row of another member that may still be acting although its lease row was deleted by
// hand. Such a member may not notice the deletion until its lease expires.
func (m *member) mayAct(o table.Observation) bool {
	leases := m.leases[table.LeaseRef{Name: o.Name, Token: o.Token}]
	return o.Confirmed() && o.LeaseRecord == nil && o.Writer != m.config.ID && o.At.Sub(o.Heartbeat) < leases
}

// vanishing describes a slot whose row has vanished: when that was first seen, and the newest remaining lease row.
type vanishing struct {
	since  time.Time
	newest table.Token
}

// learnVanished records when the row of a slot was first found missing. Spindle never deletes such a row, so it was
// deleted by hand, and the slot's member may not have noticed. The top parameter is the highest slot in use.
func (m *member) learnVanished(s table.GroupSnapshot, top int) {
	for slot := range top + 1 {
		name := table.SlotName(m.name, slot)
		o := s.Members[name]
		newest := table.Token(0)
		for token := range o.OrphanLeases {
			newest = max(newest, token)
		}
		v, known := m.vanished[name]
		switch {
		case o.Exists:
			delete(m.vanished, name)
		case name != m.last && (!known || newest > v.newest):
			m.vanished[name] = vanishing{s.At, newest}
		}
	}
}

// waitsFor reports whether a slot cannot be claimed yet because its row has vanished. The slot's member may act until
// its lease expires. That lease is unknown, so waitsFor assumes the longest known one.
func (m *member) waitsFor(name string, at time.Time) bool {
	v, vanished := m.vanished[name]
	longest := m.config.Lease
	for _, leases := range m.leases {
		longest = max(longest, leases)
	}
	return vanished && at.Sub(v.since) < longest
}

// choose returns the slot to claim. With WithReclaim, and if a member with this process's ID is still in the group, it
// returns that member's slot. Otherwise it returns the slot that this process had last, if it is free, or else the
// highest free slot below a slot in use.
//
// Gaps between slots in use are filled first, because they belonged to members that have left. A member that leaves is
// likely to be replaced, and the replacement inherits the partitions that are assigned to the slot.
func (m *member) choose(seen []elect.LockView, c *contest) (elect.LockView, bool) {
	m.candidate.LeaseRecord.Since = 0
	top := -1
	for i, s := range seen {
		if m.config.Reclaim && s.Exists && !s.Heartbeat.IsZero() && s.Holder() == m.config.ID {
			if s.LeaseRecord != nil && s.LeaseRecord.ListDigest == m.list.Digest() && s.Heartbeat.Sub(s.Token.Time()) >= s.LeaseRecord.Lease { // only a term that has lasted a whole lease counts
				m.candidate.LeaseRecord.Since = since(s.Observation)
			}
			return s, true
		}
		if s.FreeIn > 0 {
			top = i
		}
		if s.Name == c.chosen && s.FreeIn > 0 && !s.Heartbeat.IsZero() && s.Writer != m.config.ID {
			c.lost++
			c.chosen = ""
		}
	}
	var free []elect.LockView
	for i, s := range seen {
		switch {
		case s.FreeIn > 0:
		case s.Name == m.last && c.lost == 0:
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
	s := free[m.config.Clock.Random(time.Duration(min(c.among(), len(free))))]
	c.chosen = s.Name
	return s, true
}

// among returns how many of the free slots the random choice covers. It starts at 1 to keep slot numbers low, because a
// used slot stays in the table forever. It doubles each time another member claims the chosen slot first.
func (c *contest) among() int { return 1 << min(c.lost, 8) }
