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
			m.problems.Clear()
			m.last, m.out, m.failing = step.Term.Names()[0], elect.Instant{}, nil
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

// tryJoin looks at the slots once, and tries to claim a free one.
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

// slots returns the slots to choose from. These are all slots up to a few above the highest one in use, except slots
// whose members may still act.
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

// mayAct reports whether another member whose lease row was deleted may still act. The member may not have noticed the
// deletion, so it may act until its lease expires.
func (m *member) mayAct(o table.Observation) bool {
	leases := m.leases[table.LeaseRef{Name: o.Name, Token: o.Token}]
	return o.Confirmed() && o.LeaseRecord == nil && o.Writer != m.config.ID && o.At.Sub(o.Heartbeat) < leases
}

// vanishing describes a slot whose row has vanished: when that was first seen, and the newest remaining lease row.
type vanishing struct {
	since  time.Time
	newest table.Token
}

// learnVanished records when slots below the highest one were first seen without a row. Spindle never removes the row
// of a slot, so the row was deleted by hand, and the slot's member may not have noticed.
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

// waitsFor reports whether a slot must be left alone for now because its row has vanished. The wait is the longest
// known lease.
func (m *member) waitsFor(name string, at time.Time) bool {
	v, vanished := m.vanished[name]
	longest := m.config.Lease
	for _, leases := range m.leases {
		longest = max(longest, leases)
	}
	return vanished && at.Sub(v.since) < longest
}

// choose returns the slot to claim. With WithReclaim, this is the slot that a member with this id has. Otherwise it is
// the slot that this process last had, or else the highest free slot below a slot in use. Gaps are filled first because
// a member that leaves is likely to be replaced, and the member that takes its slot inherits its partitions.
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

// among returns the number of slots to choose from at random. It starts at 1, and doubles each time another member has
// taken the chosen slot. There is no other reason to look further, because slots stay in the table forever.
func (c *contest) among() int { return 1 << min(c.lost, 8) }
