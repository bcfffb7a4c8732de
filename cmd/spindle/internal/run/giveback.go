package run

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spindle-lock/spindle/internal/table"
)

// keep keeps the lock by heartbeats, which also detect when it is lost.
func (r *runner) keep() {
	r.term.kept = true
	r.Job.Begin(r.term.Term)
	r.term.Start()
}

// announce announces to the other candidates that the lock will be released.
func (r *runner) announce(s os.Signal) {
	if r.m.turn.by != "" {
		r.Say("asked to hand over %s; %s will be signaled (%v) as soon as the other candidates have been told", r.name(), r.Program, s)
	} else {
		r.Say("about to give up %s; %s will be signaled (%v) as soon as the other candidates have been told", r.name(), r.Program, s)
	}
	r.term.Announce()
}

// leave ends the work that runs during the term.
func (r *runner) leave() *holding {
	h := r.term
	r.term = nil
	h.leave()
	return h
}

// release releases the lock if it is still held, and returns the resulting event.
func (r *runner) release(how deed) event {
	by := r.m.turn.by
	h := r.leave()
	if !h.Held() {
		return r.forget(h)
	}
	defer r.over(h)
	err := r.giveBack(h, how)
	if by != "" {
		r.Candidate.Yield(err == nil, by)
	}
	if err == nil {
		return event{what: released}
	}
	if how != recordDone { // otherwise exec ends with this error
		r.Warn("%v", err)
	}
	return event{what: notReleased, err: err}
}

// abandon ends the term of a lock that was lost.
func (r *runner) abandon() {
	r.forget(r.leave())
}

func (r *runner) forget(h *holding) event {
	defer r.over(h)
	why := h.cause()
	h.End(why)
	r.noticeLoss(h, why)
	return event{what: lost, err: why}
}

func (r *runner) over(h *holding) {
	if h.kept {
		r.Job.Over()
	}
}

// giveBack releases the lock. If the work was done, the same commit records that.
func (r *runner) giveBack(h *holding, how deed) error {
	t := h.Term
	ctx, done, outcome := context.Background(), r.Job.Done(), ""
	var err error
	switch how {
	case recordDone:
		outcome = ": " + done.Key + " is done"
		err = t.Finish(ctx, errors.New("done"), done, r.Candidate.ID)
	case releaseUndone:
		outcome = ": " + done.Key + " is not done"
		fallthrough
	default:
		err = t.Release(ctx, errors.New("given back"))
	}
	switch {
	case err == nil:
		r.Say("released %s%s", r.name(), outcome)
		return nil
	case errors.Is(err, table.ErrSuperseded):
		r.noticeLoss(h, err)
		return fmt.Errorf("%s was taken away before it could be released", r.name())
	case how == recordDone && t.Recorded(ctx, done.Key): // the commit was applied, but every reply was lost
		r.Say("left %s to expire%s", r.name(), outcome)
		return nil
	}
	return fmt.Errorf("%s could not be released: %w", r.name(), err)
}
