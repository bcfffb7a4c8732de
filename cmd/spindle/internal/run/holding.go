package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/table"
)

// compete starts to compete for the lock in another goroutine. The competition ends when the lock is held, when the
// command must end, or when the competition is withdrawn or its time is over. It then puts a single event into the
// inbox.
func (r *runner) compete(how deed) {
	var pause time.Duration
	var trouble error
	pause, r.until, trouble = r.edge.competes(how)
	ctx, cancel := context.WithCancel(context.Background()) // which does not interrupt a claim in progress
	if !r.until.IsZero() {
		ctx, cancel = context.WithDeadline(context.Background(), r.until)
	}
	r.withdraw = cancel
	go func() {
		defer cancel()
		r.events.Put(r.acquire(ctx, pause, trouble))
	}()
}

// acquire competes for the lock, and returns the event that ends the competition. The argument trouble is the error of
// the last poll, or nil.
func (r *runner) acquire(ctx context.Context, pause time.Duration, trouble error) event {
	elect.Sleep(ctx, r.of.candidate.Clock, pause)
	r.of.join()
	won := false
	defer func() { r.of.leave(ctx, won) }()
	for ctx.Err() == nil {
		began := r.of.candidate.Clock.Now()
		step, end := r.edge.try(ctx)
		won = step.Term != nil
		switch {
		case won && step.Seen[0].NotReleased:
			return event{what: electedDead, term: step.Term}
		case won:
			return event{what: elected, term: step.Term}
		case end != nil:
			return event{what: unable, end: *end}
		case ctx.Err() == nil: // otherwise the poll was interrupted
			trouble = r.of.Explain(step.Err)
		}
		r.of.rest(ctx, step, began)
	}
	return event{what: withdrawn, err: trouble}
}

// holding is a term, and the work that runs during it.
type holding struct {
	*elect.Keeper
	kept bool // by heartbeats; false if the lock came too late, or after a signal to end
	told bool // the loss has been reported
	lost bool // the loss has been counted
	done bool // its release has recorded the work
	book notify.Book
	beat func() // called after each heartbeat, or nil
	put  func(event) bool
	ctx  context.Context // for other work during the term
	quit context.CancelFunc
	all  sync.WaitGroup // for that work
}

func hold(t *elect.Term, interval time.Duration, events *loop.Inbox[event]) *holding {
	h := &holding{}
	h.put = func(e event) bool { e.of = h; return events.Put(e) }
	h.Keeper = &elect.Keeper{Term: t, Interval: interval, Notify: h.notify}
	h.ctx, h.quit = context.WithCancel(t.Context())
	return h
}

// termHappenings maps events of a term to events of the machine.
var termHappenings = map[elect.TermEventKind]happening{elect.InJeopardy: jeopardy, elect.Safe: safe, elect.Lost: lost, elect.Requested: requested, elect.Announced: announced}

// notify receives the term's events.
func (h *holding) notify(e elect.TermEvent) {
	if what, known := termHappenings[e.What]; known {
		h.put(event{what: what, err: e.Err, by: e.By})
	} else if e.What == elect.Beat && h.beat != nil {
		h.beat()
	}
}

// cause returns the reason why the term ended.
func (h *holding) cause() error {
	return cmp.Or(context.Cause(h.Over()), elect.ErrExpired) // ErrExpired if the machine was suspended and no timer has fired yet
}

// reportLoss reports, at most once per term, that a term was lost or is about to be lost, or that exec's program is
// unfit. It ignores a term that was never kept, because the beginning of such a term was not reported either.
func (r *runner) reportLoss(h *holding, why error) {
	if h != nil && h.kept && !h.told {
		h.told = true
		r.of.lost(why)
	}
}

// countLoss counts, at most once per term, that the lock was lost.
func (r *runner) countLoss(h *holding) {
	if h != nil && h.kept && !h.lost {
		h.lost = true
		r.of.probe.Lost.Inc()
	}
}

var errGivenUp = errors.New("given up")

// end ends the term, if there is one, and with it the heartbeats and other background work. If the lock is still held,
// end releases the lock or leaves it to expire. If there is no term, or if the deed is abandon, end returns an empty
// event.
func (r *runner) end(how deed) (ended event) {
	h, by := r.term, r.m.turn.by
	if h == nil {
		return event{}
	}
	r.term = nil
	h.quit()
	h.all.Wait()
	if h.kept {
		_ = h.Stop() // Held returns the same information
	}
	defer func() {
		h.book.Free(h.done)
		if h.kept {
			r.edge.over()
		}
		if h.told && ended.what != released {
			r.countLoss(h)
		}
	}()
	switch {
	case !h.Held():
		why := h.cause()
		h.End(why)
		if r.reportLoss(h, why); how == abandon {
			return event{}
		}
		return event{what: lost, err: why}
	case how == abandon:
		h.End(errGivenUp)
		r.say("left %s to expire", r.lock)
		return event{}
	}
	err := r.giveBack(h, how)
	if by != "" {
		r.of.candidate.Yield(err == nil, by)
	}
	if err == nil {
		return event{what: released}
	}
	if how != recordDone { // otherwise exec ends with this error
		r.warn("%v", err)
	}
	return event{what: notReleased, err: err}
}

// giveBack releases the lock. If the work was done, the same commit records that.
func (r *runner) giveBack(h *holding, how deed) error {
	ctx, outcome := context.Background(), ""
	var err error
	switch how {
	case recordDone:
		outcome = ": " + r.of.todo.Key + " is done"
		err = h.Finish(ctx, errors.New("done"), r.of.todo, r.of.candidate.ID)
		h.done = err == nil || h.Recorded(ctx, r.of.todo.Key) // a commit may be applied although its reply is lost
	case releaseUndone:
		outcome = ": " + r.of.todo.Key + " is not done"
		fallthrough
	default:
		err = h.Release(ctx, errGivenUp)
	}
	switch {
	case err == nil || h.done:
		r.say("released %s%s", r.lock, outcome)
		return nil
	case errors.Is(err, table.ErrSuperseded):
		r.reportLoss(h, err)
		return fmt.Errorf("%s was taken away before it could be released", r.lock)
	}
	return fmt.Errorf("%s could not be released: %w", r.lock, err)
}
