package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// wait is one competition for the lock, which ends with one event. The methods that await calls also work on nil.
type wait struct {
	deadline time.Time       // or zero
	ctx      context.Context // ends at the deadline
	cancel   context.CancelFunc
	withdraw context.CancelFunc // ends the competition, but does not interrupt a claim in progress
	over     bool               // isOver has reported the end of the wait
}

// ends returns a channel that is closed when the wait ends. It returns nil once isOver has reported the end.
func (w *wait) ends() <-chan struct{} {
	if w == nil || w.over {
		return nil
	}
	return w.ctx.Done()
}

// isOver reports whether the wait has ended. It returns true only once.
func (w *wait) isOver() bool {
	if w == nil || w.over {
		return false
	}
	w.over = w.ctx.Err() != nil || !w.deadline.IsZero() && !time.Now().Before(w.deadline) // the context's timer may be late
	return w.over
}

// end ends the wait, if there is one: an event that ends exec can also occur while the lock is held.
func (w *wait) end() *wait {
	if w != nil {
		w.withdraw()
		w.cancel()
	}
	return nil
}

// compete competes for the lock until the lock is held, exec must end, or the wait is withdrawn.
func (r *runner) compete(how deed) {
	pause, limit := time.Duration(0), r.Wait
	switch how {
	case compete:
		limit -= r.Waited
	case competeAtOnce:
		r.Say("%s was handed over; competing again", r.name())
	case competeLater:
		r.tellAgain()
		pause = max(r.lease()/3-time.Since(r.began), r.lease()/30) // so that other candidates have a chance
	}
	ctx := r.begin(limit + pause) // the pause is no wait for another holder
	go func() { r.events <- r.acquire(ctx, pause) }()
}

// begin starts a wait, and returns the context for its competition.
func (r *runner) begin(limit time.Duration) (ctx context.Context) {
	w := &wait{}
	if r.Wait == 0 {
		w.ctx, w.cancel = context.WithCancel(r.ctx)
	} else {
		w.deadline = time.Now().Add(limit)
		w.ctx, w.cancel = context.WithDeadline(r.ctx, w.deadline)
	}
	ctx, w.withdraw = context.WithCancel(w.ctx)
	r.wait = w
	return ctx
}

func (r *runner) tellAgain() {
	if o := r.m.last; o.code() == 0 {
		r.Say("%s has ended; competing again", r.Program)
	} else {
		r.Warn("%v; competing again", r.end(o))
	}
}

func (r *runner) acquire(ctx context.Context, pause time.Duration) event {
	for {
		elect.Sleep(ctx, r.Candidate.Clock, pause)
		if ctx.Err() != nil {
			return event{what: withdrawn, err: r.trouble}
		}
		step, end := r.Job.Try(ctx)
		switch {
		case step.Term != nil:
			r.trouble = nil
			return event{what: elected, term: step.Term}
		case end != nil:
			return event{what: unable, end: *end}
		case ctx.Err() == nil: // otherwise the poll was interrupted
			r.trouble = step.Err
		}
		pause = step.Pause
	}
}

// end returns the End that corresponds to an outcome.
func (r *runner) end(o outcome) End {
	var err error
	switch o.why {
	case told:
		return o.End
	case tooLate:
		err = fmt.Errorf("%s was not acquired within %v", r.name(), r.Wait)
		switch {
		case errors.Is(o.err, table.ErrNewer): // which counts as held
			err = fmt.Errorf("%w because it is held: %w", err, o.err)
		case o.err != nil:
			err = r.Job.Explain(fmt.Errorf("%w: %w", err, o.err))
		}
	case wasLost:
		err = fmt.Errorf("%s was lost: %w", r.name(), o.err)
	case hadToEnd:
		if o.err != nil {
			err = fmt.Errorf("%s was given up: %w", r.name(), o.err)
			break
		}
		err = fmt.Errorf("%s was lost because no heartbeat was acknowledged in time, so exec ended %s", r.name(), r.Program)
	case notRecorded:
		err = fmt.Errorf("%s: %s SUCCEEDED, BUT IT WAS NOT RECORDED THAT %s IS DONE, so the next exec will run it again: %w", r.name(), r.Program, r.Job.Done().Key, o.err)
	}
	return End{o.code(), err}
}
