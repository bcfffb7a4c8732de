package group

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// contest is how a member gets on in the competition for a slot.
type contest struct {
	chosen string // the slot that it has tried to claim
	lost   int    // how often another was first
}

// join competes for a slot until it has one. It returns nil once ctx has ended.
func (m *member) join(ctx context.Context) *elect.Term {
	m.candidate = m.candidate.Again()
	var c contest
	for ctx.Err() == nil {
		step, err := m.tryJoin(ctx, &c)
		switch {
		case step.Term != nil:
			m.problems.Clear()
			m.last = step.Term.Names()[0]
			return step.Term
		case ctx.Err() != nil:
			return nil
		case err != nil:
			m.problems.Note(fmt.Errorf("join: %w", err))
		}
		m.sleep(ctx, step.Pause)
	}
	return nil
}

// tryJoin looks at the slots once and claims one that is free.
func (m *member) tryJoin(ctx context.Context, c *contest) (elect.Step, error) {
	began := m.config.Clock.Now()
	var r table.Roster
	err := m.try(ctx, func(ctx context.Context) (err error) {
		r, err = m.table.Roster(ctx, m.name, table.Scope{Members: true})
		return err
	})
	if err != nil {
		m.pulse.Ail(err)
		return elect.Step{Pause: m.config.Lease / 10}, err
	}
	m.pulse.Beat(began)
	own, _ := table.PartOf(m.last)
	top := own.Slot - 1 // it is among those that are looked at, even if somebody has deleted all rows
	for name := range r.Members {
		part, _ := table.PartOf(name)
		top = max(top, part.Slot)
	}
	m.candidate.Names = nil
	for slot := range min(top+2+c.among(), table.MaxSlot+1) {
		if name := table.SlotName(m.name, slot); r.Unreadable[name] == nil && !m.mayAct(r.Members[name]) {
			m.candidate.Names = append(m.candidate.Names, name)
		}
	}
	step := m.candidate.Try(ctx, func(seen []elect.Sight) ([]elect.Sight, time.Duration, error) {
		s, found := m.choose(seen, c)
		if !found {
			return nil, m.config.Lease / 10, nil
		}
		return []elect.Sight{s}, 0, nil
	}, 0)
	m.watch.Tried(step)
	return step, step.Err
}

// mayAct reports whether another member whose lease row is gone may act still, by what it had promised: it may not know yet.
func (m *member) mayAct(o table.Observation) bool {
	promised := m.promised[table.Hold{Name: o.Name, Token: o.Token}]
	return o.Confirmed() && o.Promise == nil && o.Writer != m.config.ID && o.At.Sub(o.Heartbeat) < promised
}

// choose is the slot to claim: with WithReclaim that which this id has, else that which this process had, else the
// highest that is free below one in use, as a member that leaves is likely to be replaced: who has its slot has its
// partitions.
func (m *member) choose(seen []elect.Sight, c *contest) (elect.Sight, bool) {
	m.candidate.Promise.Since = 0
	top := -1
	for i, s := range seen {
		if m.config.Reclaim && s.Exists && !s.Heartbeat.IsZero() && s.Holder() == m.config.ID {
			if s.Promise != nil && s.Promise.Plan == m.digest && s.Heartbeat.Sub(since(s.Observation).Time()) >= s.Promise.Lease { // it has lived
				m.candidate.Promise.Since = since(s.Observation)
			}
			return s, true
		}
		if s.Free > 0 {
			top = i
		}
		if s.Name == c.chosen && s.Free > 0 && !s.Heartbeat.IsZero() && s.Writer != m.config.ID {
			c.lost++
			c.chosen = ""
		}
	}
	var free []elect.Sight
	for i, s := range seen {
		switch {
		case s.Free > 0:
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
		return elect.Sight{}, false
	}
	s := free[m.config.Clock.Random(time.Duration(min(c.among(), len(free))))]
	c.chosen = s.Name
	return s, true
}

// among is how many slots are chosen from at random: the first, and twice as many each time that another has taken the
// one that was chosen. Nothing else is a reason to look further, since slots stay in the table for ever.
func (c *contest) among() int { return 1 << min(c.lost, 8) }
