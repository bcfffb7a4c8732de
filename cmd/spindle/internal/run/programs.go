package run

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/internal/elect"
)

// process is a running program. The methods that return channels also work on nil.
type process struct {
	Program
	deadlines
	allowed time.Time // the deadline that the watchdog knows
	alone   bool      // the watchdog exited and could not be replaced
	stalls  time.Time // when a stopped program becomes unfit, or zero
	stopBy  time.Time // when the StopTimeout ends, or zero
	tick    *time.Ticker
}

func (p *process) ends() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.Done()
}

func (p *process) ticks() <-chan time.Time {
	if p == nil {
		return nil
	}
	return p.tick.C
}

func (p *process) changes() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.Changed()
}

func (p *process) unwatched() <-chan struct{} {
	if p == nil || p.alone {
		return nil
	}
	return p.Unwatched()
}

func (p *process) end() *process {
	p.tick.Stop()
	return nil
}

// start starts the program under a term that is still held.
func (r *runner) start() event {
	t := r.term
	if !t.Held() {
		return event{what: lost, err: t.cause()}
	}
	p := &process{deadlines: deadlines{lease: r.lease(), grace: r.Grace}}
	var err error
	p.Program, err = r.Job.Start(t.Term, func() time.Time { // heartbeats go on during the start
		p.allowed = p.deadlines.extend(time.Now(), t.Left())
		return p.allowed.Add(-p.margin() / 2)
	})
	var never *exit.Error
	switch {
	case errors.As(err, &never):
		return event{what: unable, end: *never}
	case err != nil:
		return event{what: notStarted, end: exit.Error{Code: exit.Failed, Err: err}}
	}
	p.tick = time.NewTicker(p.margin() / 4)
	r.program = p
	return event{what: started}
}

// extend lets the program run until the lock's current deadline.
func (p *process) extend(t *holding) {
	if p.final || t.Over().Err() != nil { // a term that is announced to end is held, and a suspension shortens it
		return
	}
	if until := p.deadlines.extend(time.Now(), t.Left()); until.After(p.allowed) {
		p.allowed = until
		p.Allow(until.Add(-p.margin() / 2))
	}
}

// due returns the event that is due for the program.
func (r *runner) due(now time.Time) event {
	p := r.program
	if what := p.deadlines.due(now); what != nothing {
		return event{what: what}
	}
	switch {
	case !p.stalls.IsZero() && !now.Before(p.stalls):
		p.stalls = time.Time{}
		return event{what: unfit, err: fmt.Errorf("%s was stopped for %v", r.Program, r.lease())}
	case !p.stopBy.IsZero() && !now.Before(p.stopBy):
		p.stopBy = time.Time{}
		r.Warn("%s has not exited %v after it was signaled to end; killing it", r.Program, r.StopTimeout)
		return event{what: overstayed}
	}
	return event{}
}

// pass sends the program a signal. If the signal also ends exec and the program is stopped, pass continues the program,
// because a stopped program can't handle the signal.
func (r *runner) pass(s os.Signal) {
	r.program.Signal(s)
	if !ends(s) {
		return
	}
	r.program.Continue()
	if r.StopTimeout > 0 && r.program.stopBy.IsZero() {
		r.program.stopBy = time.Now().Add(r.StopTimeout)
	}
}

// rewatch starts a new watchdog for the program, which could outlive this process without one.
func (r *runner) rewatch() event {
	another, err := r.program.Rewatch()
	r.program.alone = !another
	switch {
	case err != nil:
		return event{what: unfit, err: fmt.Errorf("the watchdog for %s died and could not be replaced: %w", r.Program, err)}
	case another:
		r.Warn("the watchdog for %s was killed and has been replaced", r.Program)
	}
	return event{}
}

// limit gives the program only its grace period, even if the lock is held for longer. If the lease has expired, the
// machine was suspended, and another process may hold the lock: the program then has no time left.
func (r *runner) limit(after event) {
	now := time.Now()
	if errors.Is(after.err, elect.ErrExpired) {
		r.program.expire(now)
	} else {
		r.program.lose(now)
	}
	why := after.err
	if after.what == lost {
		why = fmt.Errorf("%s is lost: %w", r.name(), why)
	}
	if left := r.program.left(now); left > 0 {
		r.Warn("%v; ending %s, which will be killed if it has not exited after %v", why, r.Program, left.Round(time.Millisecond))
	} else {
		r.Warn("%v; killing %s", why, r.Program)
	}
}

// check asks whether the program still has to run. It retries until it gets an answer or the term ends.
func (r *runner) check() {
	h := r.term
	h.all.Go(func() {
		clock, retry := r.Candidate.Clock, elect.Backoff{Max: r.lease() / 3}
		for told := false; ; told = true {
			var over *exit.Error
			switch err := r.Job.Due(h.ctx); {
			case h.ctx.Err() != nil:
				return
			case errors.As(err, &over):
				h.events.Put(event{what: foundBy(over), end: *over})
				return
			case err == nil:
				h.events.Put(event{what: due})
				return
			case !told:
				r.Warn("%s can't be started yet: %v", r.Program, r.Job.Explain(err))
			}
			elect.Sleep(h.ctx, clock, retry.Pause(clock))
		}
	})
}

func foundBy(end *exit.Error) happening {
	if end.Err == nil {
		return done
	}
	return unable
}
