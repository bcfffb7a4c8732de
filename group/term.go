package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// term is one term of a member. When the term ends, the member loses its partitions. A single goroutine runs the term's
// loop and owns its state, except for the fields that Has reads. Requests to Spanner run in other goroutines.
type term struct {
	m       *member
	lease   *elect.Keeper
	lost    chan error // has room for one: the reason why the lease has ended
	reports *telemetry.Term
	own     table.LeaseRef // the member's lock and token

	looks    looks
	planning plan.Planning
	exec     *executor
	progress progress
	leave    leave
	acked    elect.Instant // just before the last acknowledged request was sent, not counting heartbeats
	began    elect.Instant
	trial    bool
	worked   elect.Instant // on trial: since when the member has owned a partition
	pending
}

// pending holds the steps that are scheduled or in progress.
type pending struct {
	revokes     alarm           // when to revoke the next batch; off: immediately
	releases    alarm           // when to send the next release
	redo        elect.Backoff   // the pause before the poll that follows a failed commit
	reconciling map[*entry]bool // partitions for which a reconciliation is queued or in progress
	idle        []*assignment   // assignments whose work returned early and will begin again
	evicting    bool
	marking     bool // the marks of paused partitions are being written
	publishing  bool
}

func newTerm(ctx context.Context, m *member, lease *elect.Term) *term {
	name, clock := lease.Names()[0], m.config.Clock
	part, _ := table.PartOf(name)
	t := &term{m: m, lost: make(chan error, 1), own: table.LeaseRef{Name: name, Token: lease.Token()}, exec: newExecutor(context.WithoutCancel(ctx), m),
		trial: m.fitness.trial, pending: pending{reconciling: map[*entry]bool{}}}
	t.lease = &elect.Keeper{Term: lease, Interval: m.config.Heartbeat, Notify: t.notify}
	t.planning.Setting = plan.Setting{List: m.list, Lease: m.config.Lease, Delay: m.config.InitialDelay, Slot: part.Slot, Token: t.own.Token}
	now := clock.Now()
	t.began, t.acked = now, now
	t.looks.clock, t.looks.lease = clock, m.config.Lease
	t.looks.retry.Max, t.redo.Max = m.config.Lease/3, m.config.Lease/3
	t.looks.last.Store(&now)
	t.looks.readDeadline = clock.AfterFunc(t.looks.limit(), func() { lease.CancelWork(t.looks.late()) })
	t.looks.next.set(clock, 0)
	return t
}

// requestLimit is the time limit for a request that is neither a poll nor a claim.
func (t *term) requestLimit() time.Duration { return elect.Attempt(t.m.config.Lease) }

// acts reports whether partitions may be acted on.
func (t *term) acts() bool { return t.lease.Held() && t.lease.Context().Err() == nil }

func (t *term) leaving() bool { return t.leave.why != nil }

// soon schedules the next poll in d, unless it is already due earlier.
func (t *term) soon(d time.Duration) { t.looks.next.sooner(t.m.config.Clock, d) }

// run runs the loop of the term. It returns when the term is lost, or when the term has been given up and all work has
// returned. The result describes how the term ended. The error is not nil if the member was stopped but its lock could
// not be released.
func (t *term) run(ctx context.Context) (ending, error) {
	t.lease.Start()
	defer t.looks.readDeadline.Stop()
	defer t.exec.cancel()
	if !t.m.config.Handover { // immediately, even if this goroutine is busy
		defer context.AfterFunc(ctx, func() { t.lease.CancelWork(context.Cause(ctx)) })()
	}
	ended := ctx.Done()
	wake := t.m.config.Clock.Timer(0)
	defer wake.Stop()
	for !t.finished() {
		if ended != nil && ctx.Err() != nil { // before any new step
			ended = nil
			t.stop(ctx)
		}
		wake.Reset(max(t.due(), 1)) // not zero: see elect.Sleep
		select {
		case reason := <-t.lost:
			_ = t.lastBeat() // it returns the same reason
			return t.end(reason), nil
		case <-t.over(ctx):
			if ctx.Err() != nil {
				continue // ctx has ended too; the stop takes precedence
			}
			if reason := context.Cause(t.lease.Context()); errors.Is(reason, errReadDeadline) && t.lease.Held() {
				t.giveUp(reason)
				continue
			}
			_ = t.lastBeat()
			return t.end(context.Cause(t.lease.Context())), nil
		case <-t.m.gracePeriod:
			if t.collect(); !t.m.inventory.works(t, false) { // the work was in time, or the term has only just begun
				t.revokeTerm(context.Cause(ctx))
				continue
			}
			_ = t.lastBeat()
			return t.end(stopped(ctx)), nil // awaitWork reports the work that has not returned
		case <-ended: // handled in the next iteration
		case <-t.m.wake:
			t.collect()
			t.handleRequests()
		case then := <-t.exec.results:
			then()
		case <-wake.C: // goOn handles it
		}
		if t.leave.limit.left(t.m.config.Clock) <= 0 {
			_ = t.lastBeat()
			return t.end(t.leave.why), nil
		}
		t.goOn()
	}
	if reason := t.lastBeat(); reason != nil {
		return t.end(reason), nil
	}
	return t.releaseSlot(ctx)
}

// notify handles the events of the member's lock. Other goroutines call it.
func (t *term) notify(e elect.TermEvent) {
	m, token := t.m, t.own.Token
	switch e.What {
	case elect.InJeopardy:
		m.log.Warn("jeopardy: a heartbeat failed", "token", token, "left", t.lease.Left().Round(time.Millisecond), "err", e.Err)
		m.emit(spindle.Jeopardy, elect.Event{Token: token, Err: m.wrap("hold", e.Err), Deadline: m.deadline(t.lease.Term)})
	case elect.Safe:
		m.log.Info("safe: a heartbeat was acknowledged again", "token", token)
		m.emit(spindle.Safe, elect.Event{Token: token, Deadline: m.deadline(t.lease.Term)})
	case elect.Marked:
		close(t.leave.applied)
	case elect.Announced:
		close(t.leave.announced)
	case elect.Lost:
		t.lost <- e.Err
	}
}

// lastBeat stops the heartbeats. If a heartbeat is in progress, it is canceled.
func (t *term) lastBeat() error {
	t.m.report(nil)
	return t.lease.Stop()
}

// finished reports whether the term can end now, because the member is leaving and all its work has returned.
func (t *term) finished() bool {
	return t.leaving() && t.lease.Context().Err() != nil && !t.m.inventory.works(t, false)
}

// due returns the time until the next step is due.
func (t *term) due() time.Duration {
	clock := t.m.config.Clock
	due := min(t.releases.left(clock), t.leave.limit.left(clock), t.exec.left(), t.revokes.left(clock), t.restarts())
	if !t.looks.pending {
		due = min(due, t.looks.next.left(clock))
	}
	return max(due, 0)
}

// goOn takes the steps that are due.
func (t *term) goOn() {
	clock := t.m.config.Clock
	if t.finished() {
		return // the partitions are released with the member's lock
	}
	if t.revokes.left(clock) <= 0 {
		t.revokeMore()
	}
	if t.releases.left(clock) <= 0 {
		t.release()
	}
	if !t.looks.pending && t.looks.next.left(clock) <= 0 {
		t.m.remind()
		t.look()
	}
	t.restart()
	t.exec.dispatch(t.stillWanted)
	t.checkFitness()
	t.m.report(t)
}

// checkFitness gives up the term if the member is useless, which means that it keeps partitions from other members
// without being able to claim or release any. It also ends the member's trial once the member has owned a partition for
// one lease duration.
func (t *term) checkFitness() {
	now := t.m.config.Clock.Now()
	limit := 2 * t.m.config.Lease
	if t.trial {
		limit = t.m.config.Lease
		switch {
		case t.m.inventory.held.Load() == 0:
			t.worked = elect.Instant{}
		case t.worked == (elect.Instant{}):
			t.worked = now
		case now.Since(t.worked) >= t.m.config.Lease && !t.planning.Full:
			t.planning.Full, t.trial = true, false
			t.m.fitness.recovered()
			t.soon(0)
		}
	}
	if !t.leaving() && t.progress.useless(now, limit, t.m.inventory.holds()) {
		t.giveUp(fmt.Errorf("%w: %w", errUseless, t.progress.err))
	}
}

// over returns a channel that is closed when the member loses its term. If the term is being given up already, over
// returns nil.
func (t *term) over(ctx context.Context) <-chan struct{} {
	if t.leaving() || ctx.Err() != nil {
		return nil
	}
	return t.lease.Context().Done()
}

// end ends the term, and leaves the member's lock to expire.
func (t *term) end(reason error) ending {
	e := t.ending()
	t.lease.End(reason)
	t.close(reason)
	t.reports.Over(whyOf(reason))
	t.m.lost(t.own, reason)
	return e
}

// releaseSlot releases the member's lock, and with it all of the member's partitions.
func (t *term) releaseSlot(ctx context.Context) (ending, error) {
	e := t.ending()
	t.close(t.leave.why)
	t.reports.Over(whyOf(t.leave.why))
	t.m.lost(t.own, t.leave.why)
	err := t.lease.Release(context.WithoutCancel(ctx), t.leave.why)
	if errors.Is(err, spindle.ErrSuperseded) {
		return e, nil
	}
	if err != nil && ctx.Err() == nil {
		t.m.log.Warn("the member's lock could not be released", "err", err)
		return e, nil
	}
	return e, err
}

// ending describes how the term ends.
func (t *term) ending() ending {
	now, lease := t.m.config.Clock.Now(), t.m.config.Lease
	ill := t.trial && t.progress.since != (elect.Instant{}) || t.progress.useless(now, lease*3/2, t.m.inventory.holds())
	return ending{
		lasted:  now.Since(t.began),
		silence: min(now.Since(t.acked), t.lease.Age()),
		ill:     ill, useless: errors.Is(t.leave.why, errUseless),
	}
}

// close revokes the remaining partitions, and cancels requests in progress.
func (t *term) close(reason error) {
	t.revokeTerm(reason)
	t.exec.cancel()
	t.m.inventory.termEnded(reason)
	t.m.report(nil)
}

// whyOf returns the reason for the end of a term. It checks errUseless first, because that error wraps the last
// failure.
func whyOf(err error) telemetry.Reason {
	if errors.Is(err, errUseless) {
		return telemetry.SteppedDown
	}
	return telemetry.ReasonOf(err, telemetry.Stopped)
}
