package group

import (
	"context"
	"fmt"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// assign updates the inventory with the partitions that the plan assigns to this member.
func (t *term) assign(before plan.Planning) {
	if t.planning.Next == before.Next && t.planning.Counts() == before.Counts() {
		return
	}
	targets := t.planning.Targets()
	t.m.inventory.assign(targets)
	if before.Next == nil || t.planning.Next == nil || !before.Next.Same(t.planning.Next) {
		t.looks.changed = t.m.config.Clock.Now()
		t.m.log.Debug("plan changed", "members", t.planning.Members(), "partitions", len(targets))
	}
}

// publish publishes the next plan if it is this member's turn. Every member computes the same plan, and usually acts on
// it before it is published. The first plan of a group is different, because no member acts on it until it is
// published. It is derived from the members that own the partitions at present, so publish needs a poll that has read
// all partitions.
func (t *term) publish(s table.GroupSnapshot, allRead bool) {
	if t.publishing || t.leaving() {
		return
	}
	next, ok := t.planning.ToPublish(s, allRead, func(i int) string { return t.m.inventory.all[i].lock })
	switch {
	case ok:
		t.sendPlan(next)
	case t.planning.ReadsAll() && !allRead:
		t.soon(0)
	}
}

// sendPlan replaces the published plan, unless it has changed since the last poll.
func (t *term) sendPlan(next *plan.Plan) {
	t.publishing = true
	var head table.Token
	body := next.Encode()
	seen := t.planning.Head
	t.exec.do(t.requestLimit(), func(ctx context.Context) (err error) {
		head, err = t.m.table.PublishPlan(ctx, t.m.name, seen, t.m.config.ID, body)
		return err
	}, func(err error) {
		t.publishing = false
		switch {
		case err == nil:
			before := t.planning
			t.planning = t.planning.Published(head, next)
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
