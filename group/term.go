package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// errUseless ends the term of a member that cannot claim or release any partition, so that other members can take over
// its share.
var errUseless = errors.New("no partition could be claimed or released for at least one lease duration")

// term serves one term of a member. When the term ends, the member loses its partitions. A single goroutine runs the
// term's loop and owns its state. Other goroutines, such as those of requests to Spanner, read only fields that are
// atomic or do not change.
type term struct {
	m       *member
	lease   *elect.Keeper
	lost    chan error // has room for one: the reason why the lease has ended
	reports *telemetry.Term
	own     table.LeaseRef // the member's lock and token

	send    *requests
	polls   polls
	moves   moves
	upkeep  upkeep
	conduct share.Conduct
	leave   leave
}

// leave is the state of a term that is being given up, either because Run's ctx has ended or because the member cannot
// do its work. Unless all work returns first, the member announces to the others that it is leaving, and publishes a
// plan without itself.
type leave struct {
	why     error // nil: the term continues
	marked  bool  // the announcement was sent
	pending bool  // releases wait for the announcement
	revoke  alarm // when to revoke all work; set during a handover
	limit   alarm // when to stop waiting for work; set if the member can't poll, or is useless and alone or unable to release
}

func newTerm(ctx context.Context, m *member, lease *elect.Term) *term {
	c, name := m.g.config, lease.Names()[0]
	part, _ := table.PartOf(name)
	t := &term{m: m, lost: make(chan error, 1), own: table.LeaseRef{Name: name, Token: lease.Token()}}
	t.lease = &elect.Keeper{Term: lease, Interval: c.Heartbeat, Notify: t.notify}
	t.send = newRequests(context.WithoutCancel(ctx), m, t.own)
	t.moves = moves{t: t, pause: elect.Backoff{Max: c.Lease / 3}, redo: elect.Backoff{Max: c.Lease / 3}}
	t.upkeep = upkeep{t: t, republish: elect.Backoff{Max: c.Lease / 3}, planning: plan.Planning{Setting: plan.Setting{List: m.inventory.List, Lease: c.Lease, Delay: c.InitialDelay, Slot: part.Slot, Token: t.own.Token}}}
	now := c.Clock.Now()
	t.conduct = share.Conduct{Lease: c.Lease, Began: now, Acked: now, Trial: m.fitness.Trial}
	t.polls.begin(t, now)
	return t
}

// acts reports whether partitions may be acted on.
func (t *term) acts() bool { return t.lease.Held() && t.lease.Context().Err() == nil }

func (t *term) leaving() bool { return t.leave.why != nil }

// facts returns the inputs of a decision, except for the rows that a poll has read.
func (t *term) facts() share.Facts {
	c := t.send.config
	return share.Facts{Inventory: t.m.inventory, Planned: t.upkeep.planning.Planned(), Acting: t.acts(), Leaving: t.leaving(), Moving: t.moves.revokes.left(c.Clock) > 0 && t.moves.revokes.on, Batch: c.Batch, Now: c.Clock.Now()}
}

// run runs the loop of the term. It returns when the term is lost, or when the term has been given up and all work has
// returned. It does not wait for work beyond the grace period or leave.limit. The result describes how the term ended.
// run returns an error only if ctx has ended and the member's lock could not be released.
func (t *term) run(ctx context.Context) (share.Ending, error) {
	t.lease.Start()
	defer t.polls.readDeadline.Stop()
	defer t.send.cancel()
	if !t.send.config.Handover { // immediately, even if this goroutine is busy
		defer context.AfterFunc(ctx, func() { t.lease.CancelWork(context.Cause(ctx)) })()
	}
	ended := ctx.Done()
	wake := t.polls.clock.Timer(0)
	defer wake.Stop()
	var reason error
	for reason == nil && !t.finished() {
		if ended != nil && ctx.Err() != nil { // before any new step
			ended = nil
			t.stop(ctx)
		}
		wake.Reset(max(t.due(), 1)) // not zero: see elect.Sleep
		var goOn bool
		goOn, reason = t.await(ctx, ended, wake.C)
		if t.leave.revoke.left(t.polls.clock) <= 0 || t.leave.revoke.on && t.lease.Pressed() {
			t.revokeTerm(context.Cause(ctx))
		}
		if goOn && t.leave.limit.left(t.polls.clock) <= 0 {
			reason = t.leave.why
		}
		if goOn && reason == nil {
			t.goOn()
		}
	}
	t.m.report(nil)
	return t.end(ctx, cmp.Or(reason, t.lease.Stop())) // a heartbeat in progress is canceled
}

// await waits for an event and handles it. It reports whether the loop should take the steps that are due. If the event
// ends the term, await returns the reason.
func (t *term) await(ctx context.Context, ended <-chan struct{}, wake <-chan time.Time) (goOn bool, reason error) {
	over := t.lease.Context().Done()
	if t.leaving() || ctx.Err() != nil {
		over = nil // the term is being given up already
	}
	select {
	case reason := <-t.lost:
		return false, reason
	case <-over:
		if ctx.Err() != nil {
			return false, nil // ctx has ended too; the stop takes precedence
		}
		reason := context.Cause(t.lease.Context())
		if errors.Is(reason, errReadDeadline) && t.lease.Held() {
			t.giveUp(reason)
			return false, nil
		}
		return false, reason
	case <-t.m.caller.gracePeriod:
		if t.collect(); t.m.inventory.All.Works(false) {
			return false, stopped(ctx) // awaitWork reports the work that has not returned
		}
		t.revokeTerm(context.Cause(ctx)) // the work returned in time, or the term has only just begun
		return false, nil
	case <-ended: // handled in the next iteration
	case <-t.m.g.inbox.Ready():
		t.collect()
		t.handleRequests()
	case then := <-t.send.replies:
		then()
	case <-wake: // goOn handles it
	}
	return true, nil
}

// notify handles the events of the member's lock. Other goroutines call it.
func (t *term) notify(e elect.TermEvent) {
	m, token := t.m, t.own.Token
	switch e.What {
	case elect.InJeopardy:
		m.voice.log.Warn("jeopardy: a heartbeat failed", "token", token, "left", t.lease.Left().Round(time.Millisecond), "err", e.Err)
		m.voice.emit(spindle.Jeopardy, elect.Event{Token: token, Err: m.g.wrap("hold", e.Err), Deadline: m.deadline(t.lease.Term)})
	case elect.Safe:
		m.voice.log.Info("safe: a heartbeat was acknowledged again", "token", token)
		m.voice.emit(spindle.Safe, elect.Event{Token: token, Deadline: m.deadline(t.lease.Term)})
	case elect.Lost:
		t.lost <- e.Err
	}
}

// finished reports whether the term can end now, because the member is leaving and all its work has returned.
func (t *term) finished() bool {
	return t.leaving() && t.lease.Context().Err() != nil && !t.m.inventory.All.Works(false)
}

// due returns the time until the next step is due.
func (t *term) due() time.Duration {
	clock := t.polls.clock
	due := min(t.moves.releases.left(clock), t.leave.revoke.left(clock), t.leave.limit.left(clock), t.moves.left(), t.moves.revokes.left(clock))
	if !t.polls.pending {
		due = min(due, t.polls.next.left(clock))
	}
	if t.leave.revoke.on { // heartbeats may begin to fail, and the work needs time to return
		due = min(due, max(t.lease.Spare(), t.polls.lease/50))
	}
	return max(due, 0)
}

// goOn takes the steps that are due.
func (t *term) goOn() {
	clock := t.polls.clock
	if t.finished() {
		return // the partitions are released with the member's lock
	}
	if t.moves.revokes.left(clock) <= 0 {
		t.moves.revokeMore()
	}
	if t.moves.releases.left(clock) <= 0 {
		t.moves.release()
	}
	if !t.polls.pending && t.polls.next.left(clock) <= 0 {
		t.m.remind()
		t.polls.poll()
	}
	t.moves.dispatch()
	t.checkFitness()
	t.m.report(t)
}

// checkFitness gives up the term if the member is useless. It also ends the trial of a member that has passed it.
func (t *term) checkFitness() {
	now := t.polls.clock.Now()
	owned, acted := t.m.inventory.All.Holds()
	if t.conduct.Passes(now, acted) {
		t.upkeep.planning.Full = true
		t.m.fitness.Recovered()
		t.polls.decide(0)
	}
	if !t.leaving() && t.conduct.Useless(now, owned) {
		t.giveUp(fmt.Errorf("%w: %w", errUseless, t.conduct.Err))
	}
	if errors.Is(t.leave.why, errUseless) && t.polls.left() <= 0 { // its heartbeats would keep the partitions taken
		t.leave.limit.sooner(t.polls.clock, t.polls.lease/5)
	}
}

// handleRequests carries out the program's calls to Pause, Resume, LetGo and SetWeight.
func (t *term) handleRequests() {
	if !t.m.takeRequests() {
		return
	}
	for _, e := range t.m.inventory.All {
		switch {
		case e.State == share.Held && e.Paused != share.Running:
			t.moves.revoke(e, ErrPaused)
		case e.State == share.Held && e.Assigned.Let:
			t.moves.revoke(e, ErrLetGo)
		}
		if e.State == share.Revoking && e.Assigned.Let {
			t.moves.releases.sooner(t.polls.clock, 0)
		}
	}
	t.polls.decide(0)
}

// end ends the term. If the term was lost, or if work has not returned in time, end leaves the member's lock to expire.
// Otherwise, it releases the lock together with all of the member's partitions.
func (t *term) end(ctx context.Context, lost error) (share.Ending, error) {
	owned, _ := t.m.inventory.All.Holds()
	e := t.conduct.Ending(t.polls.clock.Now(), t.lease.Age(), owned, errors.Is(t.leave.why, errUseless))
	if lost != nil {
		t.lease.End(lost)
		t.close(lost)
		return e, nil
	}
	t.close(t.leave.why)
	t.m.memory.Until = time.Time{} // another member can have the slot from now on
	err := t.lease.Release(context.WithoutCancel(ctx), t.leave.why)
	t.reports.Released(err)
	switch {
	case err == nil, errors.Is(err, spindle.ErrSuperseded):
		return e, nil
	case ctx.Err() == nil:
		t.m.voice.log.Warn("the member's lock could not be released", "err", err)
		return e, nil
	}
	return e, err
}

// close revokes the remaining partitions, and cancels requests in progress.
func (t *term) close(reason error) {
	t.revokeTerm(reason)
	t.send.cancel()
	t.m.inventory.TermEnded()
	t.m.report(nil)
	why, level := telemetry.ReasonOf(reason, telemetry.Stopped), slog.LevelWarn
	switch {
	case errors.Is(reason, errUseless): // it wraps the last failure
		why = telemetry.SteppedDown
	case errors.Is(reason, spindle.ErrStopped):
		level = slog.LevelInfo
	}
	t.reports.Over(why)
	t.m.voice.log.Log(context.Background(), level, "left", "slot", t.own.Name, "token", t.own.Token, "reason", reason)
	t.m.voice.emit(spindle.Lost, elect.Event{Token: t.own.Token, Err: reason})
	t.m.failing = reason
}

func stopped(ctx context.Context) error {
	return fmt.Errorf("%w: %w", spindle.ErrStopped, context.Cause(ctx))
}

// stop begins to give up the term because ctx has ended. With WithHandover, if there is work to hand over, stop only
// announces that the member is leaving. The work is revoked once the other members have had time to see the
// announcement, or earlier if heartbeats fail. In all other cases, stop revokes all work immediately. In particular, a
// term that is already being given up has no work to hand over.
func (t *term) stop(ctx context.Context) {
	t.leave.why = stopped(ctx)
	t.leave.limit.off() // from now on, the grace period is the limit
	c, all := t.send.config, t.m.inventory.All
	_, acted := all.Holds() // without WithWork, any of these may be worked on
	if !c.Handover || !t.acts() || !(all.Works(false) || c.Work == nil && acted > 0) {
		t.revokeTerm(context.Cause(ctx))
		return
	}
	t.m.voice.log.Info("leaving", "slot", t.own.Name, "token", t.own.Token)
	t.m.voice.emit(spindle.Leaving, elect.Event{Token: t.own.Token})
	t.reports.Leaving(t.lease.Context())
	t.leave.revoke.set(c.Clock, c.Lease/3)
	t.upkeep.mark()
}

// giveUp begins to give up the term because of a problem, while Run continues. It revokes all work. If all work returns
// in time, the member's lock is then released.
func (t *term) giveUp(why error) {
	t.leave.why = why
	if errors.Is(why, errReadDeadline) {
		t.leave.limit.set(t.polls.clock, t.polls.lease/5)
	}
	t.revokeTerm(why)
	t.m.report(t)
}

// revokeTerm revokes all of the member's partitions. If the work on one partition is slow to return, the other
// partitions are released without waiting for that work.
func (t *term) revokeTerm(reason error) {
	for _, e := range t.m.inventory.All {
		if e.State == share.Held {
			t.endWork(e, reason)
		}
	}
	t.lease.CancelWork(reason)
	t.leave.revoke.off()
	t.moves.releases.sooner(t.polls.clock, t.polls.lease/50)
}
