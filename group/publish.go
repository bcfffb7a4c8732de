package group

import (
	"context"
	"fmt"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// assign updates the inventory with the partitions that the plan assigns to this member.
func (t *term) assign(before planning) {
	if t.planning.next == before.next && t.planning.counts() == before.counts() {
		return
	}
	targets := t.planning.targets()
	t.m.inventory.assign(targets)
	if before.next == nil || t.planning.next == nil || !before.next.Same(t.planning.next) {
		t.looks.changed = t.m.config.Clock.Now()
		t.m.log.Debug("plan changed", "members", len(t.planning.members), "partitions", len(targets))
	}
}

// publish publishes the plan that all members already act on, if it is this member's turn. The first plan is derived
// from the members that currently have the partitions.
func (t *term) publish(s table.GroupSnapshot, allRead bool) {
	p := t.planning
	switch {
	case !p.toPublish || t.publishing || t.leaving():
	case p.known != nil:
		t.sendPlan(p.next)
	case allRead:
		base := p.base(s, func(i int) string { return t.m.inventory.all[i].lock })
		if next, told := base.Next(p.list, p.members, s.At); told {
			t.sendPlan(next)
		}
	default:
		t.soon(0)
	}
}

// sendPlan replaces the most recently read plan.
func (t *term) sendPlan(next *plan.Plan) {
	t.publishing = true
	var head table.Token
	body := next.Encode()
	seen := t.planning.head
	t.exec.do(t.requestLimit(), func(ctx context.Context) (err error) {
		head, err = t.m.table.PublishPlan(ctx, t.m.name, seen, t.m.config.ID, body)
		return err
	}, func(err error) {
		t.publishing = false
		switch {
		case err == nil:
			before := t.planning
			t.planning = t.planning.published(head, next)
			t.assign(before)
			t.soon(0)
		case elect.First(err):
			t.soon(t.m.config.Clock.Random(t.m.config.Lease/50 + 1))
		default:
			t.m.problems.Note(fmt.Errorf("publish: %w", err))
			t.soon(t.redo.Pause(t.m.config.Clock))
		}
	})
}
