package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// term is one term of a member: the partitions that it has end with it. One goroutine runs its loop and owns its state,
// except for what Has reads. Requests run beside it.
type term struct {
	m       *member
	lease   *elect.Keeper
	lost    chan error // has room for one: why the lease has ended
	reports *telemetry.Term
	own     table.LeaseRef // the member's lock, and the token

	looks    looks
	planning planning
	exec     *executor
	progress progress
	leave    leave
	acked    elect.Instant // before the last acknowledged request was sent, except heartbeats
	began    elect.Instant
	trial    bool
	worked   elect.Instant // on trial: since when it has a partition
	pending
}

// pending is what is due, waits, or is under way.
type pending struct {
	revokes     alarm           // when to revoke the next that move; off: at once
	releases    alarm           // when to release
	redo        elect.Backoff   // the pause before commits are repeated
	reconciling map[*entry]bool // a commit waits, or is under way
	idle        []*assignment   // whose work has returned early, and begins again
	evicting    bool
	publishing  bool
}

func newTerm(ctx context.Context, m *member, lease *elect.Term) *term {
	name, clock := lease.Names()[0], m.config.Clock
	part, _ := table.PartOf(name)
	t := &term{m: m, lost: make(chan error, 1), own: table.LeaseRef{Name: name, Token: lease.Token()}, exec: newExecutor(context.WithoutCancel(ctx), m),
		trial: m.fitness.trial, pending: pending{reconciling: map[*entry]bool{}}}
	t.lease = &elect.Keeper{Term: lease, Interval: m.config.Heartbeat, Notify: t.notify}
	t.planning.setting = setting{list: m.list, lease: m.config.Lease, delay: m.config.InitialDelay, slot: part.Slot, token: t.own.Token}
	now := clock.Now()
	t.began, t.acked = now, now
	t.looks.clock, t.looks.lease = clock, m.config.Lease
	t.looks.retry.Max, t.redo.Max = m.config.Lease/3, m.config.Lease/3
	t.looks.last.Store(&now)
	t.looks.readDeadline = clock.AfterFunc(t.looks.limit(), func() { lease.CancelWork(errReadDeadline) })
	t.looks.next.set(clock, 0)
	return t
}

// requestLimit is how long a request may take that is neither a look nor a claim.
func (t *term) requestLimit() time.Duration { return elect.Attempt(t.m.config.Lease) }

// acts reports whether partitions may be acted on.
func (t *term) acts() bool { return t.lease.Held() && t.lease.Context().Err() == nil }

func (t *term) leaving() bool { return t.leave.why != nil }

// soon makes the next look come in d, or earlier.
func (t *term) soon(d time.Duration) { t.looks.next.sooner(t.m.config.Clock, d) }

// run keeps the term until it is lost, or is given up and all work has returned. It returns how the term ended; an
// error says that a stop could not be completed.
func (t *term) run(ctx context.Context) (ending, error) {
	t.lease.Start()
	defer t.looks.readDeadline.Stop()
	defer t.exec.cancel()
	if !t.m.config.Handover { // at once, even if this goroutine is busy
		defer context.AfterFunc(ctx, func() { t.lease.CancelWork(context.Cause(ctx)) })()
	}
	ended := ctx.Done()
	wake := t.m.config.Clock.Timer(0)
	defer wake.Stop()
	for !t.finished() {
		if ended != nil && ctx.Err() != nil { // before anything else begins
			ended = nil
			t.stop(ctx)
		}
		wake.Reset(t.due())
		select {
		case reason := <-t.lost:
			_ = t.lastBeat() // it has to say the same
			return t.end(reason), nil
		case <-t.over(ctx):
			if ctx.Err() != nil {
				continue // both: the caller stops it
			}
			if reason := context.Cause(t.lease.Context()); errors.Is(reason, errReadDeadline) && t.lease.Held() {
				t.giveUp(reason)
				continue
			}
			_ = t.lastBeat()
			return t.end(context.Cause(t.lease.Context())), nil
		case <-t.m.gracePeriod:
			if t.collect(); !t.m.inventory.works(t, false) { // both: it was in time, or the term has begun only now
				t.revokeTerm(context.Cause(ctx))
				continue
			}
			_ = t.lastBeat()
			return t.end(stopped(ctx)), nil // awaitWork says what has not returned
		case <-ended: // the next round takes it in
		case <-t.m.wake:
			t.collect()
			t.handleRequests()
		case then := <-t.exec.results:
			then()
		case <-wake.C: // after whatever else has happened by now
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

// notify takes in events of the member's lock, from other goroutines.
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

// lastBeat ends the heartbeats. It may take as long as a request that hangs.
func (t *term) lastBeat() error {
	t.m.report(nil)
	return t.lease.Stop()
}

// finished reports whether everything can be given up at once: the member leaves, and all its work has returned.
func (t *term) finished() bool {
	return t.leaving() && t.lease.Context().Err() != nil && !t.m.inventory.works(t, false)
}

// due returns the time until something is due.
func (t *term) due() time.Duration {
	clock := t.m.config.Clock
	due := min(t.releases.left(clock), t.leave.limit.left(clock), t.exec.left(), t.revokes.left(clock), t.restarts())
	if !t.looks.pending {
		due = min(due, t.looks.next.left(clock))
	}
	return max(due, 0)
}

// goOn does what is due.
func (t *term) goOn() {
	clock := t.m.config.Clock
	if t.finished() {
		return // what it has is released with the member's lock
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

// checkFitness gives the term up if the member keeps partitions from others that it can't claim, or release. It ends
// the member's trial once it has had a partition for a lease.
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
		case now.Since(t.worked) >= t.m.config.Lease && !t.planning.full:
			t.planning.full, t.trial = true, false
			t.m.fitness.recovered()
			t.soon(0)
		}
	}
	if !t.leaving() && t.progress.lasts(now) >= limit && t.progress.useless(now, limit, t.m.inventory.holds()) {
		t.giveUp(fmt.Errorf("%w: %w", errUseless, t.progress.err))
	}
}

// over returns a channel that is closed once the term has ended by itself.
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

// releaseSlot releases the member's lock, and with it everything that the member has.
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

// ending returns how the term ends.
func (t *term) ending() ending {
	now, lease := t.m.config.Clock.Now(), t.m.config.Lease
	ill := t.trial && t.progress.since != (elect.Instant{}) || t.progress.useless(now, lease*3/2, t.m.inventory.holds())
	return ending{
		lasted:  now.Since(t.began),
		silence: min(now.Since(t.acked), t.lease.Age()),
		ill:     ill, useless: errors.Is(t.leave.why, errUseless),
	}
}

// close revokes what is left, and cancels requests that are under way.
func (t *term) close(reason error) {
	t.revokeTerm(reason)
	t.exec.cancel()
	t.m.inventory.termEnded(reason)
	t.m.report(nil)
}

// whyOf returns the reason of a term's end. errUseless comes first: it wraps why nothing could be done.
func whyOf(err error) telemetry.Reason {
	if errors.Is(err, errUseless) {
		return telemetry.SteppedDown
	}
	return telemetry.ReasonOf(err, telemetry.Stopped)
}
