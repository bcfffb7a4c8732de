package spindle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// leader runs one term. It passes each event to the term's state machine, and carries out the actions that the state
// machine returns. Only the loop's goroutine uses a leader; other goroutines put events into its inbox.
type leader struct {
	*elector
	ctx      context.Context // Run's
	machine  leadership
	keeper   *elect.Keeper
	events   *loop.Inbox[event]
	worked   chan struct{} // closed once the work has returned
	reports  *telemetry.Term
	stopped  elect.Instant  // when Run's ctx ended, or zero
	why      error          // why the term is being given up; set once the work's context is canceled
	answers  []chan<- error // for the StepDown calls that are waiting
	outcome  *error         // the result of every StepDown call; nil until it is known
	reminder *time.Timer    // logs that the work has not returned
	waited   time.Duration  // how long the wait is at the next reminder
	err      error          // why the stop could not be completed
}

// lead runs the term t, and returns once the term has ended and its work has returned. After Run's ctx has ended, lead
// returns an error if the work did not return in time or if the lock could not be released.
func (e *elector) lead(ctx context.Context, t *elect.Term) error {
	if ctx.Err() != nil {
		return notLost(e.release(ctx, t, context.Cause(ctx)))
	}
	l := &leader{elector: e, ctx: ctx, events: loop.NewInbox[event](), worked: make(chan struct{})}
	e.rest.began = e.config.Clock.Now()
	l.machine = leadership{handover: e.config.Handover, keepOnReturn: e.config.KeepOnReturn, idle: e.config.Lead == nil}
	l.keeper = e.config.Keeper(t, l.notify)
	l.reminder = e.config.Clock.Timer(e.config.Lease)
	l.reminder.Stop()
	defer l.reminder.Stop()
	l.begin()
	l.run()
	l.events.Close()
	l.receive() // answers StepDown calls that came too late
	return l.err
}

// termHappenings maps the keeper's events to the machine's.
var termHappenings = map[elect.TermEventKind]happening{elect.InJeopardy: jeopardy, elect.Safe: safe, elect.Lost: termEnded, elect.Requested: requested, elect.Announced: announced}

// notify puts an event of the term into the inbox.
func (l *leader) notify(e elect.TermEvent) {
	if what, known := termHappenings[e.What]; known {
		l.events.Put(event{what: what, err: e.Err, by: e.By, at: e.At, left: e.Left})
	}
}

func (l *leader) begin() {
	t := l.keeper.Term
	l.reports = l.watch.Elected(t)
	l.show(view{term: t, events: l.events})
	l.log.Info("elected", "token", t.Token())
	l.emit(Elected, elect.Event{Token: t.Token(), Deadline: l.deadline()})
	l.keeper.Start()
	if l.config.Handover {
		l.keeper.WatchRequests()
	}
	if l.config.Lead != nil {
		go l.work()
	}
}

// work calls the leader function.
func (l *leader) work() {
	defer func() {
		if p := recover(); p != nil {
			panic(p) // the process ends, with other goroutines of the work still running, so the lock must not be released
		}
		close(l.worked)
		l.events.Put(event{what: returned})
	}()
	t := l.keeper.Term
	l.config.Lead(t.Context(), options.Lead{Term: t, Fence: l.fence(Token(t.Token())), StepDown: func(ctx context.Context) error { return l.stepDown(ctx, t) }})
}

func (l *leader) run() {
	ended := l.ctx.Done()
	for l.machine.phase != over {
		var late <-chan struct{}
		if l.machine.phase >= draining {
			late = l.gracePeriod
		}
		select {
		case <-l.events.Ready():
			l.receive()
		case <-ended:
			ended, l.stopped = nil, l.config.Clock.Now()
			l.handle(event{what: runEnded})
			l.remindOfStop()
		case <-late:
			l.receive() // if both are ready, the work was in time
			l.handle(event{what: timeIsUp})
		case <-l.reminder.C:
			l.remind()
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

// handle passes an event to the machine and carries out the actions that the machine returns.
func (l *leader) handle(e event) {
	if l.machine.phase < lost {
		l.report(e)
	}
	if e.what == asked {
		l.answers = append(l.answers, e.answer)
	}
	for _, a := range l.machine.on(e) {
		l.do(a, e)
	}
	switch {
	case l.outcome != nil:
		l.answer(*l.outcome)
	case l.waited > l.config.Lease:
		l.answer(l.hung())
	}
}

func (l *leader) report(e event) {
	token := l.keeper.Token()
	switch e.what {
	case jeopardy:
		l.log.Warn("jeopardy: a heartbeat failed", append([]any{"token", token, "left", rounded(e.left), "err", e.err}, loop.HintAttr(e.err)...)...)
		l.observer.Put(int(Jeopardy), e.at.Time(), elect.Event{Token: token, Err: l.wrap("hold", e.err), Deadline: e.at.Time().Add(e.left)})
	case safe:
		l.log.Info("safe: a heartbeat was acknowledged again", "token", token)
		l.observer.Put(int(Safe), e.at.Time(), elect.Event{Token: token, Deadline: e.at.Time().Add(e.left)})
	case requested:
		l.log.Info("asked to hand the lock over", "token", token, "by", byWhom[e.by])
	}
}

var byWhom = map[table.Request]string{table.ByOperator: "request", table.ByPreference: "a higher-priority candidate"}

func (l *leader) do(a action, e event) {
	switch a {
	case announce:
		l.announce()
	case cancelWork:
		l.cancelWork()
	case release:
		l.releaseLock()
	case expire:
		l.leaveToExpire()
	case concede:
		l.concede(e.err, e.at)
	case abandon:
		l.abandon()
	}
}

func (l *leader) deadline() time.Time {
	return l.config.Clock.Now().Time().Add(l.keeper.Left())
}

func (l *leader) announce() {
	t := l.keeper.Term
	l.show(view{term: t, events: l.events, leaving: true})
	l.log.Info("leaving", "token", t.Token())
	l.emit(Leaving, elect.Event{Token: t.Token()})
	l.reports.Leaving(t.Context())
	l.keeper.Announce()
}

func (l *leader) cancelWork() {
	cause := ErrSteppedDown
	l.why = ErrSteppedDown
	switch {
	case l.ctx.Err() != nil:
		cause = context.Cause(l.ctx)
		l.why = fmt.Errorf("%w: %w", ErrStopped, cause)
	case l.machine.early:
		l.why = errReturned
	}
	l.keeper.CancelWork(cause)
	if l.machine.phase != draining {
		return // there is no work to wait for
	}
	v := *l.view.Load()
	v.canceled = l.config.Clock.Now()
	l.show(v)
	l.remindIn(l.config.Lease)
	l.remindOfStop()
}

// releaseLock releases the lock, unless it has been lost.
func (l *leader) releaseLock() {
	if reason := l.keeper.Stop(); reason != nil {
		l.lose(reason, l.config.Clock.Now())
		return
	}
	l.termOver(l.why, l.config.Clock.Now())
	err := l.release(l.ctx, l.keeper.Term, l.why)
	l.outcome = &err
	if l.ctx.Err() != nil {
		l.err = notLost(err)
		return
	}
	l.candidate.Yield(err == nil, l.machine.by)
	if l.machine.early {
		l.restNow()
	}
}

// leaveToExpire ends a term whose work does not return, and lets the lock expire.
func (l *leader) leaveToExpire() {
	if reason := l.keeper.Stop(); reason != nil {
		l.why = reason
	}
	l.termOver(l.why, l.config.Clock.Now())
	l.keeper.End(l.why)
	l.abandon()
	l.outcome = &l.err
}

// concede ends the term after the lock was lost.
func (l *leader) concede(reason error, at elect.Instant) {
	l.lose(reason, at)
	l.runs.Fail(errHangs)
	_ = l.keeper.Stop() // returns the same reason
	l.runs.Fail(nil)
	if l.machine.phase == lost {
		l.runs.Fail(errOverdue)
		l.remindIn(l.config.Lease)
	}
}

func (l *leader) lose(reason error, at elect.Instant) {
	l.termOver(reason, at)
	l.outcome = &reason
	if errors.Is(reason, ErrSuperseded) {
		l.candidate.Yield(true, "") // the lock was taken away so that a different candidate gets it
	}
}

var (
	errHangs   = errors.New("the last heartbeat of the ended term has not returned")
	errOverdue = errors.New("the leader function has not returned since its term ended; this candidate does not compete until it does")
)

// abandon stops waiting for the work.
func (l *leader) abandon() {
	l.runs.Fail(errOverdue)
	l.overdue = append(l.overdue, l.worked)
	l.err = loop.Overdue("the leader function", l.config.Lease)
}

// termOver publishes the end of the term to HasLock and Seen, the log, the observer and telemetry.
func (l *leader) termOver(reason error, at elect.Instant) {
	token := l.keeper.Token()
	l.runs.Beat(at)
	l.show(view{})
	l.last = token
	l.rest.over(at, l.config.Lease)
	level, given := slog.LevelWarn, telemetry.Stopped
	switch {
	case errors.Is(reason, errReturned):
		level, given = slog.LevelInfo, telemetry.Returned
	case errors.Is(reason, ErrSteppedDown):
		level, given = slog.LevelInfo, telemetry.SteppedDown
	case errors.Is(reason, ErrStopped):
		level = slog.LevelInfo
	}
	l.log.Log(context.Background(), level, "lost", append([]any{"token", token, "reason", reason}, loop.HintAttr(reason)...)...)
	l.observer.Put(int(Lost), at.Time(), elect.Event{Token: token, Err: reason})
	l.reports.Over(telemetry.ReasonOf(reason, given))
}

// answer answers the StepDown calls that are waiting.
func (l *leader) answer(err error) {
	for _, a := range l.answers {
		a <- err
	}
	l.answers = nil
}

func (l *leader) remindIn(d time.Duration) {
	l.waited = d
	l.reminder.Reset(d)
}

// remindOfStop lets the reminder be in time before the lock is left to expire, once Run's ctx has ended.
func (l *leader) remindOfStop() {
	if l.stopping() {
		l.remindIn(l.graceLeft() / 2)
	}
}

// stopping reports whether the lock is left to expire unless the work returns in time.
func (l *leader) stopping() bool { return l.machine.phase == draining && l.stopped != elect.Instant{} }

func (l *leader) graceLeft() time.Duration {
	return max(l.grace()-l.config.Clock.Now().Ran(l.stopped), 0)
}

// remind logs that the work has not returned. Until it does, either no process can lead or this candidate can't.
func (l *leader) remind() {
	if l.stopping() {
		l.log.Warn("the leader function was told to stop but has not returned; if it does not return in the time that is left, the lock is not released but left to expire", "left", rounded(l.graceLeft()))
		return
	}
	why := "the leader function was told to stop but has not returned; the lock stays held until it does"
	if l.machine.phase == lost {
		why = "the leader function has not returned since its term ended; this candidate does not compete until it does"
	}
	l.log.Warn(why, "waited", rounded(l.waited))
	l.reminder.Reset(l.waited) // again each time the wait has doubled, as elect.Remind does
	l.waited *= 2
	l.answer(l.hung())
}

// rounded rounds a duration for display.
func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func (l *leader) hung() error {
	if l.stopping() {
		return fmt.Errorf("the leader function was told to stop, but has not returned; the lock is still held, and will be left to expire if the function does not return within %v", rounded(l.graceLeft()))
	}
	return fmt.Errorf("the leader function was told to stop, but has not returned within one lease duration (%v); the lock is still held, and will be released once the function returns", l.config.Lease)
}
