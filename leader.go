package spindle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// leader runs the elector's loop during one term. It passes each event to the term's course, and carries out the acts
// that the course returns. It runs in the loop's goroutine, from the election until the course is over. The keeper and
// the work run in goroutines of their own, which put events into the inbox.
type leader struct {
	loop     *elector
	ctx      context.Context // Run's
	course   course
	keeper   *elect.Keeper
	book     notify.Book
	events   *loop.Inbox[event]
	worked   chan struct{} // closed once the work has returned
	reports  *telemetry.Term
	stop     stop
	calls    calls
	reminder reminder
}

// stop records how a term is being ended.
type stop struct {
	asked elect.Instant // when Run's ctx ended, or zero
	why   error         // why the term is being given up; set once the work's context is canceled
	err   error         // why the stop could not be completed
}

// calls are the StepDown calls of a term.
type calls struct {
	waiting []chan<- error
	outcome *error      // the result of every call; nil until it is known
	late    *time.Timer // fires one lease after the work's context was canceled
	hung    bool        // it has fired
}

// reminder is the timer of the log messages that say that the work has not returned.
type reminder struct {
	*time.Timer
	waited time.Duration // the length of the wait at the next reminder
}

// errReturned is the reason for a term that ended because its leader function returned.
var errReturned = fmt.Errorf("%w: the leader function returned", ErrSteppedDown)

// lead runs the term t, and returns once the term has ended and its work has returned. Once Run's ctx has ended, lead
// waits only for the grace period. It then returns an error if the work has not returned or if the lock could not be
// released.
func (e *elector) lead(ctx context.Context, t *elect.Term) error {
	if ctx.Err() != nil {
		return notLost(e.release(ctx, t, context.Cause(ctx)))
	}
	c := e.config
	l := &leader{loop: e, ctx: ctx, events: loop.NewInbox[event](), worked: make(chan struct{})}
	l.course = course{handover: c.Handover, keepOnReturn: c.KeepOnReturn, idle: c.Lead == nil}
	l.keeper, l.book = c.Keeper(t, l.notify), c.Book(t, notify.Term{Name: e.lock.name})
	defer l.book.Free(false) // however the term ends
	l.reminder.Timer, l.calls.late = c.Clock.Timer(c.Lease), c.Clock.Timer(c.Lease)
	for _, timer := range []*time.Timer{l.reminder.Timer, l.calls.late} {
		timer.Stop()
		defer timer.Stop()
	}
	l.begin()
	l.run()
	l.events.Close()
	l.receive() // answers StepDown calls that came too late
	return l.stop.err
}

var termHappenings = map[elect.TermEventKind]happening{elect.InJeopardy: jeopardy, elect.Safe: safe, elect.Lost: termEnded, elect.Requested: requested, elect.Announced: announced}

func (l *leader) notify(e elect.TermEvent) {
	if what, known := termHappenings[e.What]; known {
		l.events.Put(event{what: what, TermEvent: e})
	}
}

func (l *leader) begin() {
	e, t := l.loop, l.keeper.Term
	e.rest.began = e.config.Clock.Now()
	l.reports = e.watch.Elected(t)
	e.lock.show(view{term: t, events: l.events})
	e.log.Info("elected", "token", t.Token())
	now := e.config.Clock.Now()
	e.tell(Elected, now, elect.Event{Token: t.Token(), Deadline: now.Time().Add(t.Left())})
	l.keeper.Start()
	if e.config.Handover {
		l.keeper.WatchRequests()
	}
	if e.config.Lead != nil {
		go l.work()
	}
}

// work calls the leader function.
func (l *leader) work() {
	defer func() {
		if p := recover(); p != nil {
			panic(p) // the process is about to end, but other goroutines of the work may still be running, so the lock must not be released
		}
		close(l.worked)
		l.events.Put(event{what: returned})
	}()
	t, lock := l.keeper.Term, l.loop.lock
	c := &lock.config
	s := &loop.Stall{Work: t.Context(), Clock: c.Clock, Limit: c.Stall, Slow: loop.LogSlow(l.loop.log.With("token", t.Token())), End: func(reason error) {
		if t.Stall(reason) {
			l.events.Put(event{what: stalled, TermEvent: elect.TermEvent{Err: reason, At: c.Clock.Now()}})
		}
	}}
	defer s.Watch()()
	c.Lead(t.Context(), options.Lead{Term: t, Fence: lock.fence(Token(t.Token())), Stall: s, StepDown: func(ctx context.Context) error { return lock.stepDown(ctx, t) }})
}

func (l *leader) run() {
	ended := l.ctx.Done()
	for l.course.stage != over {
		var late <-chan struct{}
		if l.course.stage >= draining {
			late = l.loop.gracePeriod
		}
		select {
		case <-l.events.Ready():
			l.receive()
		case <-ended:
			ended, l.stop.asked = nil, l.loop.config.Clock.Now()
			l.handle(event{what: runEnded})
			if l.stopping() {
				l.remindLater()
			}
		case <-late:
			l.receive() // if both are ready, the work was in time
			l.handle(event{what: timeIsUp})
		case <-l.reminder.C:
			l.remind()
		case <-l.calls.late.C:
			l.receive() // the work may have returned in time here, too
			l.calls.hung = true
			l.calls.answer(errHung(l))
		}
	}
}

func (l *leader) receive() {
	for {
		e, ok := l.events.Next()
		if !ok {
			return
		}
		l.handle(e)
	}
}

// handle passes an event to the course, and carries out the acts.
func (l *leader) handle(e event) {
	if l.course.stage < hung {
		l.report(e)
	}
	if e.what == asked {
		l.calls.waiting = append(l.calls.waiting, e.answer)
	}
	for _, a := range l.course.on(e) {
		acts[a](l, e)
	}
	switch {
	case l.calls.outcome != nil:
		l.calls.answer(*l.calls.outcome)
	case l.calls.hung:
		l.calls.answer(errHung(l))
	}
}

// answer answers the StepDown calls that are waiting.
func (c *calls) answer(err error) {
	for _, call := range c.waiting {
		call <- err
	}
	c.waiting = nil
}

var byWhom = map[table.Request]string{table.ByOperator: "request", table.ByPreference: "a higher-priority candidate"}

func (l *leader) report(e event) {
	token, to := l.keeper.Token(), l.loop
	switch e.what {
	case jeopardy:
		to.log.Warn("jeopardy: a heartbeat failed", append([]any{"token", token, "left", rounded(e.Left), "err", e.Err}, loop.HintAttr(e.Err)...)...)
		to.tell(Jeopardy, e.At, elect.Event{Token: token, Err: to.lock.wrap("hold", e.Err), Deadline: e.At.Time().Add(e.Left)})
	case safe:
		to.log.Info("safe: a heartbeat was acknowledged again", "token", token)
		to.tell(Safe, e.At, elect.Event{Token: token, Deadline: e.At.Time().Add(e.Left)})
	case requested:
		to.log.Info("asked to hand the lock over", "token", token, "by", byWhom[e.By])
	}
}

// acts maps each act to its function. The function receives the event that has led to the act.
var acts = [...]func(*leader, event){announce: (*leader).announce, cancelWork: (*leader).cancelWork, release: (*leader).release, stall: (*leader).stall, expire: (*leader).expire, lose: (*leader).lose, abandon: (*leader).abandon}

func (l *leader) announce(event) {
	e, t := l.loop, l.keeper.Term
	e.lock.show(view{term: t, events: l.events, leaving: true})
	e.log.Info("leaving", "token", t.Token())
	e.tell(Leaving, e.config.Clock.Now(), elect.Event{Token: t.Token()})
	l.reports.Leaving(t.Context())
	l.book.Leaving()
	l.keeper.Announce()
}

func (l *leader) cancelWork(event) {
	cause := ErrSteppedDown
	l.stop.why = ErrSteppedDown
	switch {
	case l.ctx.Err() != nil:
		cause = context.Cause(l.ctx)
		l.stop.why = fmt.Errorf("%w: %w", ErrStopped, cause)
	case l.course.early:
		l.stop.why = errReturned
	}
	l.keeper.CancelWork(cause)
	if l.course.stage != draining {
		return // there is no work to wait for
	}
	v := *l.loop.lock.view.Load()
	v.canceled = l.loop.config.Clock.Now()
	l.loop.lock.show(v)
	l.calls.late.Reset(l.loop.config.Lease)
	l.remindLater()
}

// release releases the lock, unless it has been lost.
func (l *leader) release(event) {
	e, now := l.loop, l.loop.config.Clock.Now
	if reason := l.keeper.Stop(); reason != nil {
		l.lost(reason, l.keeper.Ended())
		return
	}
	l.over(l.stop.why, now())
	err := e.release(l.ctx, l.keeper.Term, l.stop.why)
	l.reports.Released(err)
	if happened := e.config.Happened; happened != nil && errors.Is(err, ErrSuperseded) {
		happened(elect.TermEvent{What: elect.Lost, Err: err, At: now()})
	}
	l.calls.outcome = &err
	if l.ctx.Err() != nil {
		l.stop.err = notLost(err)
		return
	}
	e.candidate.Yield(err == nil, l.course.by)
	if l.course.early {
		e.restNow()
	}
}

// stall publishes that this process may no longer act under the lock. The lock itself is released when the work
// returns. If the work does not return within a lease, heartbeats end and the lock expires.
func (l *leader) stall(e event) {
	draining := l.stop.why != nil
	l.stop.why = e.Err
	l.loop.lock.about.Stalled()
	l.loop.tell(Stalled, e.At, elect.Event{Token: l.keeper.Token(), Err: e.Err})
	l.over(e.Err, e.At)
	l.loop.lock.runs.Fail(errOverdue)
	if !draining {
		l.calls.late.Reset(l.loop.config.Lease)
	}
	l.remindLater()
}

// expire ends a term whose work has not returned in time, and lets the lock expire.
func (l *leader) expire(e event) {
	at := l.loop.config.Clock.Now()
	if reason := l.keeper.Stop(); reason != nil {
		l.stop.why, at = reason, l.keeper.Ended()
	}
	l.over(l.stop.why, at)
	l.keeper.End(l.stop.why)
	l.abandon(e)
	l.calls.outcome = &l.stop.err
	l.reports.Released(l.stop.err)
}

func (l *leader) lose(e event) {
	runs := &l.loop.lock.runs
	l.lost(e.Err, e.At)
	runs.Fail(errHangs)
	_ = l.keeper.Stop() // returns the same reason
	runs.Fail(nil)
	if l.course.stage == lost {
		runs.Fail(errOverdue)
		l.remindLater()
	}
}

func (l *leader) lost(reason error, at elect.Instant) {
	l.over(reason, at)
	l.calls.outcome = &reason
	l.reports.Released(reason) // the term may have been over earlier, because the work had stalled
	if errors.Is(reason, ErrSuperseded) {
		l.loop.candidate.Yield(true, "") // the lock was taken away so that a different candidate gets it
	} else if l.stop.why != nil && !l.course.early { // work may return because of the loss, before the loss is known here
		l.loop.candidate.Yield(false, l.course.by) // the lock was being given up, so a different candidate goes first
	}
}

var (
	errHangs   = errors.New("the last heartbeat of the ended term is still in progress")
	errOverdue = errors.New("the leader function has not returned since its term ended; this candidate will not compete again until the function returns")
)

func (l *leader) abandon(event) {
	l.loop.lock.runs.Fail(errOverdue)
	l.loop.overdue = func() { <-l.worked }
	l.stop.err = loop.Overdue("the leader function", l.loop.config.Grace())
}

// over publishes the end of the term to HasLock and Seen, the log, the observer and telemetry. A second call for the
// same term does nothing.
func (l *leader) over(reason error, at elect.Instant) {
	e, token := l.loop, l.keeper.Token()
	if e.last == token {
		return
	}
	e.lock.runs.Beat(at)
	e.lock.show(view{})
	e.last = token
	e.rest.over(at, e.config.Lease)
	level, given := slog.LevelInfo, telemetry.Stopped
	switch {
	case errors.Is(reason, errReturned):
		given = telemetry.Returned
	case errors.Is(reason, ErrSteppedDown):
		given = telemetry.SteppedDown
	case !errors.Is(reason, ErrStopped):
		level = slog.LevelWarn
	}
	e.log.Log(context.Background(), level, "lost", append([]any{"token", token, "reason", reason}, loop.HintAttr(reason)...)...)
	e.tell(Lost, at, elect.Event{Token: token, Err: reason})
	l.reports.Over(telemetry.ReasonOf(reason, given))
}

// stopping reports whether the lock will be left to expire unless the work returns in time.
func (l *leader) stopping() bool {
	return l.course.stage == draining && l.stop.asked != elect.Instant{}
}

func (l *leader) graceLeft() time.Duration {
	return max(l.loop.config.Grace()-l.loop.config.Clock.Now().Ran(l.stop.asked), 0)
}

// remindLater starts the timer for the next reminder that the work has not returned. Once Run's ctx has ended, only one
// reminder is logged, halfway through the rest of the grace period.
func (l *leader) remindLater() {
	l.reminder.waited = l.loop.config.Lease
	if l.stopping() {
		l.reminder.waited = l.graceLeft() / 2
	}
	l.reminder.Reset(l.reminder.waited)
}

// remind logs that the work has not returned, and what this means for the lock or for this candidate.
func (l *leader) remind() {
	log := l.loop.log
	if l.stopping() {
		log.Warn("the leader function was told to stop but has not returned; if it does not return in the remaining time, the lock will not be released, but left to expire", "left", rounded(l.graceLeft()))
		return
	}
	why := "the leader function was told to stop but has not returned; the lock stays held until it returns"
	if l.course.stage >= hung {
		why = errOverdue.Error()
	}
	log.Warn(why, "waited", rounded(l.reminder.waited))
	l.reminder.Reset(l.reminder.waited) // again each time the wait has doubled, as elect.Remind does
	l.reminder.waited *= 2
}

// errHung returns StepDown's error if the leader function has not returned.
func errHung(l *leader) error {
	if l.course.stage == hung {
		return fmt.Errorf("the leader function has stalled, and has not returned within one lease duration (%v); unless it returns soon, the lock is left to expire", l.loop.config.Lease)
	}
	return fmt.Errorf("the leader function was told to stop, but has not returned within one lease duration (%v); the lock is still held, and will be released once the function returns", l.loop.config.Lease)
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
