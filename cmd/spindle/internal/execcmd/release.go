package execcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// holding is a term, and what goes on during it.
type holding struct {
	*elect.Term
	kept bool            // by heartbeats: it did not come too late
	ctx  context.Context // of what else goes on
	quit context.CancelFunc
	left chan struct{}  // closed when nothing is to go on any more
	all  sync.WaitGroup // of all that goes on
}

func hold(t *elect.Term) *holding {
	h := &holding{Term: t, left: make(chan struct{})}
	h.ctx, h.quit = context.WithCancel(t.Context())
	return h
}

// cause is why the term is over.
func (h *holding) cause() error {
	if cause := context.Cause(h.Context()); cause != nil {
		return cause
	}
	return elect.ErrExpired // the machine was suspended, and no timer has noticed yet
}

// during lets something go on during the term, which ends with an event unless that is nothing.
func (r *runner) during(f func(*holding) event) {
	h := r.term
	h.all.Go(func() {
		e := f(h)
		if e.what == nothing {
			return
		}
		select {
		case r.events <- e:
		case <-h.left:
		}
	})
}

// keep keeps the lock with heartbeats, and notices when it is lost.
func (r *runner) keep() {
	r.term.kept = true
	r.Job.Begin(r.term.Term)
	r.during(func(h *holding) event {
		if reason := h.Renew(r.lease()/3, h.left); reason != nil {
			h.End(reason)
		}
		return event{}
	})
	r.during(func(h *holding) event {
		select {
		case <-h.Context().Done():
			return event{what: lost, err: h.cause()}
		case <-h.left:
			return event{}
		}
	})
}

// watchRequests looks for a request to hand the lock over.
func (r *runner) watchRequests() {
	r.during(func(h *holding) event {
		if by := h.Requested(h.ctx); by != "" {
			return event{what: requested, by: by}
		}
		return event{}
	})
}

// announce tells the other candidates that the lock will be released.
func (r *runner) announce(s os.Signal) {
	if r.m.turn.by != "" {
		r.Say("asked to hand %s over: %s gets %v when the other candidates know", r.name(), r.Program, s)
	} else {
		r.Say("leaving %s: %s gets %v when the other candidates know", r.name(), r.Program, s)
	}
	r.during(func(h *holding) event {
		h.Announce(h.ctx, nil)
		return event{what: announced}
	})
}

// leave ends what goes on during the term.
func (r *runner) leave() *holding {
	h := r.term
	r.term = nil
	h.quit()
	close(h.left)
	h.all.Wait()
	return h
}

// release releases the lock, if it is still held, and says what came of that.
func (r *runner) release(how deed) event {
	by := r.m.turn.by
	h := r.leave()
	if !h.Held() {
		return r.forget(h)
	}
	defer r.over(h)
	err := r.giveBack(h, how)
	if by != "" {
		r.Candidate.Yield(h.Term, err == nil, by)
	}
	if err == nil {
		return event{what: released}
	}
	if how != recordDone { // else exec ends with that
		r.Warn("%v", err)
	}
	return event{what: notReleased, err: err}
}

// abandon leaves a lock that is lost.
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

// giveBack releases the lock, and in the same commit records what was to be done once, if it is done.
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
	case how == recordDone && t.Recorded(ctx, done.Key): // only the reply was lost, again and again
		r.Say("left %s to expire%s", r.name(), outcome)
		return nil
	}
	return fmt.Errorf("%s could not be released: %w", r.name(), err)
}
