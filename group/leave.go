package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
)

// leave is how a term is given up: by its caller, or because the member is of no use. An announcement, and a plan
// without this member, tell the others.
type leave struct {
	why       error         // nil: the term continues
	marked    bool          // an announcement was sent
	applied   chan struct{} // closed once a handover's announcement is in the table,
	announced chan struct{} // and once it has ended
	pending   bool          // releases wait until the others know
	limit     alarm         // how long a member that does not see the group waits for work
}

func stopped(ctx context.Context) error {
	return fmt.Errorf("%w: %w", spindle.ErrStopped, context.Cause(ctx))
}

// stop gives the term up because ctx has ended: with a handover, work continues until the others have seen that.
func (t *term) stop(ctx context.Context) {
	t.leave.why = stopped(ctx)
	if !t.m.config.Handover || !t.m.inventory.works(t, false) && t.m.config.Work != nil {
		t.revokeTerm(context.Cause(ctx))
		return
	}
	t.m.log.Info("leaving", "slot", t.own.Name, "token", t.own.Token)
	t.m.emit(spindle.Leaving, elect.Event{Token: t.own.Token})
	t.reports.Leaving(t.lease.Context())
	applied, announced := make(chan struct{}), make(chan struct{})
	t.leave.marked, t.leave.applied, t.leave.announced = true, applied, announced
	t.lease.Announce()
	t.exec.do(t.m.config.Lease, func(ctx context.Context) error {
		select {
		case <-applied:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, func(err error) {
		if err == nil {
			t.publishWithout()
		}
	})
	t.exec.do(2*t.m.config.Lease, func(ctx context.Context) error {
		select {
		case <-announced:
		case <-ctx.Done():
		}
		return nil
	}, func(error) { t.revokeTerm(context.Cause(ctx)) })
}

// giveUp gives the term up by itself: it revokes all work, and then releases the member's lock.
func (t *term) giveUp(why error) {
	t.leave.why = why
	if errors.Is(why, errReadDeadline) {
		t.leave.limit.set(t.m.config.Clock, t.m.config.Lease/5)
	}
	t.revokeTerm(why)
	t.m.report(t)
}

// revokeTerm revokes all that the member has. If some work does not return, other partitions are released by
// themselves: these stay assigned to this member unless the others know that it leaves.
func (t *term) revokeTerm(reason error) {
	for _, e := range t.m.inventory.all {
		if e.state == held {
			t.endWork(e, reason)
		}
	}
	t.lease.CancelWork(reason)
	t.releases.sooner(t.m.config.Clock, t.m.config.Lease/50)
}

// mark announces that the member leaves. If that fails, the others miss a signal.
func (t *term) mark() {
	t.leave.marked, t.leave.pending = true, true
	t.exec.do(t.m.config.Lease/5, func(ctx context.Context) error {
		return t.m.table.Announce(ctx, t.own.Token, t.own.Name)
	}, func(err error) {
		t.leave.pending = false
		t.releases.sooner(t.m.config.Clock, 0)
		if err == nil {
			t.publishWithout()
		}
	})
}

// publishWithout publishes the plan for the group without this member. All members see at their next look that there is
// a new plan, however many they are.
func (t *term) publishWithout() {
	if t.publishing {
		return
	}
	if next, differs := t.planning.without(); differs {
		t.sendPlan(next)
	}
}
