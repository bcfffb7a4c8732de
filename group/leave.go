package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
)

// leave is that a term is being given up: by its caller, or as the member is of no use. The others are told by an
// announcement, and by a plan without this member.
type leave struct {
	why       error         // nil: it goes on
	marked    bool          // an announcement was sent
	applied   chan struct{} // closed once a handover's announcement is in the table,
	announced chan struct{} // and once it has ended
	pending   bool          // releases wait for the others to know
	limit     alarm         // until when work is waited for, of a member that does not see the group
}

func stopped(ctx context.Context) error {
	return fmt.Errorf("%w: %w", spindle.ErrStopped, context.Cause(ctx))
}

// stop gives the term up, as ctx has ended: with a handover, work goes on until the others have seen that.
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

// giveUp gives the term up by itself: all work is revoked, and then the member's lock is released.
func (t *term) giveUp(why error) {
	t.leave.why = why
	if errors.Is(why, errReadDeadline) {
		t.leave.limit.set(t.m.config.Clock, t.m.config.Lease/5)
	}
	t.revokeTerm(why)
}

// revokeTerm revokes all that the member has. What is released by itself, if some work does not return, would be left to
// this member unless the others know that it goes.
func (t *term) revokeTerm(reason error) {
	for _, e := range t.m.inventory.all {
		if e.state == held {
			t.endWork(e, reason)
		}
	}
	t.lease.CancelWork(reason)
	t.releases.sooner(t.m.config.Clock, t.m.config.Lease/50)
}

// mark announces that the member leaves. What fails is a signal that the others don't get.
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

// publishWithout publishes the plan that the group is left with. All members see at their next look that there is one,
// however many they are.
func (t *term) publishWithout() {
	if t.publishing {
		return
	}
	if next, differs := t.planning.without(); differs {
		t.sendPlan(next)
	}
}
