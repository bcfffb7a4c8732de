package group

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
)

// upkeep keeps the group's rows up to date for the other members and for operators. It publishes plans, evicts dead
// members, marks paused partitions, sets the member's weight, and announces that the member is leaving. At most one
// request of each kind is in progress.
type upkeep struct {
	t           *term
	planning    plan.Planning
	publishing  bool
	unpublished bool          // the last plan could not be published
	republish   elect.Backoff // the pauses before the polls that follow
	evicting    bool
	marking     bool
	turn        int // how many unmarked partitions the last attempts have left out because other members had them
	weighing    bool
}

// plan replaces u.planning, and tells the inventory which partitions are now assigned to this member.
func (u *upkeep) plan(next plan.Planning) {
	before := u.planning
	u.planning = next
	if next.Next == before.Next {
		return
	}
	targets := next.Targets()
	u.t.m.inventory.Assign(targets)
	if !before.Next.Same(next.Next) {
		u.t.polls.changed = u.t.polls.clock.Now()
		u.t.m.voice.log.Debug("plan changed", "members", next.Members(), "partitions", len(targets))
	}
}

// ended schedules the poll that follows a request, or notes why the request failed. It reports whether the request
// succeeded.
func (u *upkeep) ended(what string, err error) bool {
	switch {
	case err == nil:
		u.t.polls.decide(0)
	case elect.First(err):
		u.t.polls.aside()
	default:
		u.t.m.voice.problems.Note(fmt.Errorf("%s: %w", what, err))
	}
	return err == nil
}

// publish publishes the next plan if it is this member's turn. A group's first plan requires a poll that has read all
// partitions. A member that is leaving publishes only the plan without itself, as long as it hands its work over and the
// plan still has it: another plan may have come first.
func (u *upkeep) publish(s table.GroupSnapshot, allRead bool) {
	switch {
	case u.t.leave.revoke.on && !u.planning.Counts():
		u.publishWithout()
		return
	case u.publishing || u.t.leaving():
		return
	}
	next, ok := u.planning.ToPublish(s, allRead, func(i int) string { return u.t.m.inventory.All[i].Lock })
	u.unpublished = u.unpublished && ok
	switch {
	case ok:
		u.sendPlan(next)
	case u.planning.ReadsAll() && !allRead:
		u.t.polls.soon(0)
	}
}

// sendPlan replaces the published plan with next, unless the published plan has changed since the last poll.
func (u *upkeep) sendPlan(next *plan.Plan) {
	u.publishing = true
	body, seen := next.Encode(), u.planning.Head
	do(u.t.send, u.t.send.limit(), func(ctx context.Context) (table.Token, error) {
		return u.t.send.table.PublishPlan(ctx, u.t.m.g.name, seen, u.t.send.config.ID, body)
	}, func(head table.Token, err error) {
		u.publishing = false
		u.unpublished = err != nil && !elect.First(err)
		if u.ended("publish", err) && head > u.planning.Head && !u.planning.Stale { // otherwise, a poll has seen that another plan has replaced it
			u.plan(u.planning.Published(head, next))
		}
		if u.unpublished {
			u.t.polls.decide(u.republish.Pause(u.t.polls.clock))
		} else {
			u.republish.Reset()
		}
	})
}

// publishWithout publishes a plan that assigns no partitions to this member. The other members notice the plan at their
// next poll, even if the group is so large that they rarely read each other's rows.
func (u *upkeep) publishWithout() {
	if u.publishing {
		return
	}
	if next, differs := u.planning.Without(); differs {
		u.sendPlan(next)
	}
}

// evict ends the terms of dead members in a single commit, so that living members can claim the dead members'
// partitions.
func (u *upkeep) evict(dead []table.Observation) {
	if len(dead) == 0 || u.evicting {
		return
	}
	u.evicting = true
	do(u.t.send, u.t.send.limit(), func(ctx context.Context) ([]string, error) {
		return u.t.send.table.EvictMembers(ctx, dead...)
	}, func(freed []string, err error) {
		u.evicting = false
		if !u.ended("evict", err) {
			return
		}
		for _, o := range dead {
			if slices.Contains(freed, o.Name) {
				u.t.m.voice.log.Info("evicted a member whose lease has expired", "slot", o.Name, "member", o.Holder(), "token", o.Token)
			}
		}
		u.plan(u.planning.Evicted(freed)) // the next poll reads their partitions
	})
}

// weigh writes the weight that the program has set into the member's own lease row, if the last poll read a different
// weight. If an earlier write commits late and undoes the change, the next poll shows it, and the member calls weigh
// again.
func (u *upkeep) weigh(own table.Observation) {
	weight := u.t.m.candidate.LeaseRecord.Weight
	if u.weighing || u.t.leaving() || own.Token != u.t.own.Token || own.LeaseRecord == nil || cmp.Or(own.LeaseRecord.Weight, 1) == cmp.Or(weight, 1) {
		return
	}
	u.weighing = true
	do(u.t.send, u.t.send.limit(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, u.t.send.table.Weigh(ctx, own, weight)
	}, func(_ struct{}, err error) {
		u.weighing = false
		u.ended("weigh", err)
	})
}

// showPaused marks the paused partitions in the table, so that operators do not mistake them for partitions without a
// member. If another member still has a partition, showPaused marks it after a later poll. The argument members
// contains the rows from the last poll, which show whose terms have ended. It can be nil.
func (u *upkeep) showPaused(members map[string]table.Observation) {
	t, names := u.t, u.t.m.inventory.Unmarked()
	if names == nil || u.marking || t.leaving() {
		return
	}
	u.marking = true
	asked := t.m.inventory.Look
	ended := func(with table.LeaseRef) bool { o := members[with.Name]; return o.Exists && plan.Over(o, with.Token) }
	some := share.Section(names, u.turn, t.send.config.Batch)
	do(t.send, t.send.limit(), func(ctx context.Context) ([]string, error) {
		return t.send.table.MarkPaused(ctx, t.own, ended, some...)
	}, func(marked []string, err error) {
		u.marking = false
		if err != nil {
			t.m.voice.problems.Note(fmt.Errorf("mark paused partitions: %w", err))
			return
		}
		t.m.inventory.Mark(marked, asked)
		switch {
		case len(marked) == 0:
			u.turn += len(some)
		case len(names) > len(some):
			u.showPaused(members)
		}
	})
}

// mark announces that the member is leaving. If the announcement fails, the other members notice the departure later.
// In a handover, the work continues until members that poll on schedule have seen the announcement.
func (u *upkeep) mark() {
	t, began := u.t, u.t.polls.clock.Now()
	t.leave.marked, t.leave.pending = true, true
	do(t.send, t.polls.lease/5, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, elect.Insist(ctx, t.polls.clock, t.polls.lease, func(ctx context.Context) error {
			return t.send.table.Announce(ctx, t.own.Token, t.own.Name)
		})
	}, func(_ struct{}, err error) {
		t.leave.pending = false
		t.moves.releases.sooner(t.polls.clock, 0)
		if err == nil {
			u.publishWithout()
			if t.leave.revoke.on {
				t.leave.revoke.set(t.polls.clock, t.polls.lease/3+t.polls.clock.Now().Since(began))
			}
		}
	})
}
