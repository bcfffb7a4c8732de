package execcmd

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/internal/elect"
)

// process is the program while it runs. The methods that a select uses also work on nil.
type process struct {
	Program
	deadlines
	allowed time.Time // the deadline that its watchdog knows
	alone   bool      // no other watchdog could be started
	stalls  time.Time // when it is unfit, unless it continues; or zero
	stopBy  time.Time // when it has overstayed, or zero
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
	p.allowed = p.deadlines.extend(time.Now(), t.Left())
	var err error
	p.Program, err = r.Job.Start(t.Term, p.allowed.Add(-p.margin()/2))
	var never *child.StartError
	switch {
	case errors.As(err, &never):
		return event{what: unable, end: End{never.Code, err}}
	case err != nil:
		return event{what: notStarted, end: End{Failed, err}}
	}
	p.tick = time.NewTicker(p.margin() / 4)
	r.program = p
	return event{what: started}
}

// extend lets the program run for as long as the lock is held by now.
func (p *process) extend(t *holding) {
	if p.final || t.Context().Err() != nil {
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
		r.Warn("%s has not ended %v after it was told to: killing it", r.Program, r.StopTimeout)
		return event{what: overstayed}
	}
	return event{}
}

// pass sends the program a signal. It continues a stopped program, for which a signal to end would otherwise wait.
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

// rewatch puts the program under another watchdog: without one, the program could outlive this process.
func (r *runner) rewatch() event {
	another, err := r.program.Rewatch()
	r.program.alone = !another
	switch {
	case err != nil:
		return event{what: unfit, err: fmt.Errorf("the watchdog of %s is gone, and there is no other: %w", r.Program, err)}
	case another:
		r.Warn("the watchdog of %s was killed: another one has taken its place", r.Program)
	}
	return event{}
}

// limit gives the program its grace, and no more, though the lock may be held for longer.
func (r *runner) limit(after event) {
	r.program.lose(time.Now())
	why := after.err
	if after.what == lost {
		why = fmt.Errorf("%s is lost: %w", r.name(), why)
	}
	r.Warn("%v: ending %s, which is killed after %v", why, r.Program, r.program.gracePeriod())
}

// check asks whether the program is still to be run, until that is known or the term is over.
func (r *runner) check() {
	h := r.term
	h.all.Go(func() {
		clock, retry := r.Candidate.Clock, elect.Backoff{Max: r.lease() / 3}
		for told := false; ; told = true {
			end, err := r.Job.Due(h.ctx)
			switch {
			case h.ctx.Err() != nil:
				return
			case end != nil:
				h.events.Put(event{what: foundBy(end), end: *end})
				return
			case err == nil:
				h.events.Put(event{what: due})
				return
			case !told:
				r.Warn("%s is not started yet: %v", r.Program, r.Job.Explain(err))
			}
			elect.Sleep(h.ctx, clock, retry.Pause(clock))
		}
	})
}

func foundBy(end *End) happening {
	if end.Err == nil {
		return done
	}
	return unable
}
