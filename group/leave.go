package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
)

// leave is the state of a term that is being given up, either because Run's ctx has ended or because the member cannot
// do its work. To inform the other members, the member announces that it is leaving and publishes a plan without
// itself.
type leave struct {
	why       error         // nil: the term continues
	marked    bool          // the announcement was sent
	applied   chan struct{} // closed once the announcement of a handover is in the table
	announced chan struct{} // closed once the announcement has ended
	pending   bool          // releases wait for the announcement
	limit     alarm         // when to stop waiting for work; set if the member can't poll the group, or is useless and alone
}

func stopped(ctx context.Context) error {
	return fmt.Errorf("%w: %w", spindle.ErrStopped, context.Cause(ctx))
}

// stop begins to give up the term because ctx has ended. With WithHandover, it first announces that the member is
// leaving, and work continues until the other members have had time to see the announcement.
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

// giveUp begins to give up the term because of a problem, although Run continues. It revokes all work. The member's
// lock is released once all work has returned.
func (t *term) giveUp(why error) {
	t.leave.why = why
	if errors.Is(why, errReadDeadline) {
		t.leave.limit.set(t.m.config.Clock, t.m.config.Lease/5)
	}
	t.revokeTerm(why)
	t.m.report(t)
}

// revokeTerm revokes all of the member's partitions. If the work on one partition is slow to return, the other partitions
// are released without waiting for it.
func (t *term) revokeTerm(reason error) {
	for _, e := range t.m.inventory.all {
		if e.state == held {
			t.endWork(e, reason)
		}
	}
	t.lease.CancelWork(reason)
	t.releases.sooner(t.m.config.Clock, t.m.config.Lease/50)
}

// mark announces that the member is leaving. If the announcement fails, the other members only miss a signal.
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

// publishWithout publishes a plan that assigns no partitions to this member. The other members see the plan at their
// next poll, even in a group so large that they rarely read each other's rows.
func (t *term) publishWithout() {
	if t.publishing {
		return
	}
	if next, differs := t.planning.Without(); differs {
		t.sendPlan(next)
	}
}
