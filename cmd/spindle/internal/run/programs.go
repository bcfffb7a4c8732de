package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
)

// A Job connects an Exec to a lock and a program. Exec calls its methods one at a time.
type Job interface {
	Holder
	// Try polls the lock once, and claims it if possible. If Try returns an *exit.Error, exec ends with it.
	Try(ctx context.Context) (elect.Step, *exit.Error)
	// Due checks, while the lock is held, whether the program still has to run. If so, it returns nil. If it returns an
	// *exit.Error, exec ends with it: without an error in it, the work was already done. After any other error, exec calls
	// Due again.
	Due(ctx context.Context) error
	// Begin is called when the lock has been acquired, before the first heartbeat.
	Begin(t *elect.Term)
	// Jeopardy is called when a heartbeat of the term has failed, and Safe when a heartbeat is acknowledged again.
	Jeopardy(t *elect.Term, err error)
	Safe()
	// Ending is called for each signal to end. Stuck is called if the program's group was killed but has not exited when
	// the lock is lost; it may be called again.
	Ending()
	Stuck(why error)
	// Start starts the program. The program must exit before the time that until returns, even if this process is stopped
	// or killed. Start calls until when it begins and just before the program begins. Later, the program's Allow can
	// extend that time. If trying again would not help, the error is an *exit.Error.
	Start(t *elect.Term, until func() time.Time) (Program, error)
	// Explain adds a hint to a database error.
	Explain(err error) error
}

// A Program is a running program, with all processes that it has started.
type Program interface {
	Done() <-chan struct{} // closed when none of its processes is left
	Code() int             // the exit code, once Done is closed
	Strays() int           // once Done is closed, the number of processes that had left the group and were killed
	Spared() int           // once Done is closed, the number of its processes still running because they belong to other users
	Pid() int              // the id of the process and of its group
	Signal(s os.Signal)    // sends a signal to the group
	Continue()             // continues the group if it was stopped; Stopped returns nil from then on, until the next stop
	Kill()                 // kills the group

	Changed() <-chan struct{} // has a value after the program was stopped or continued
	Stopped() os.Signal       // the signal that stopped the program, or nil

	Allow(until time.Time)      // lets the watchdog kill the group at that time, unless Allow is called again
	Unwatched() <-chan struct{} // closed when the watchdog has exited
	Rewatch() (bool, error)     // starts a new watchdog; false if the program has exited
}

// Exec runs a program while a lock is held.
type Exec struct {
	command
	Job
	Program  string // its name
	Grace    time.Duration
	Patience                  // for the lock
	Once     bool             // ask Due before the program starts
	Restart  bool             // run the program again
	Signals  <-chan os.Signal // those that exec handles or passes on
	Terminal Terminal         // or nil

	// StopTimeout is how long the program may take to exit after a signal that ends exec, or 0 for no limit.
	StopTimeout time.Duration

	run     *runner
	program *process // while it runs, or nil
}

// Patience is how long exec waits for the lock.
type Patience struct {
	Wait    time.Duration // 0 for no limit
	Waited  time.Duration // the part of Wait that elapsed before Run
	Trouble error         // why the last poll before Run failed
}

// Run competes for the lock, and runs the program while it holds the lock. When Run returns, all of the program's
// processes have exited, and the lock has been released or lost. Run returns nil if exec succeeded, and otherwise an
// *exit.Error.
func (x *Exec) Run() error {
	x.prepare()
	x.run.run()
	if end := x.end(x.run.m.last); *end != (exit.Error{}) {
		return end
	}
	return nil
}

func (x *Exec) prepare() {
	x.run = &runner{command: &x.command, edge: x, lock: x.Candidate.Names[0], events: loop.NewInbox[event](),
		m: machine{once: x.Once, handover: x.Handover, restart: x.Restart}}
	x.run.signals, x.run.asks = x.Signals, x.Asks
	if x.Terminal != nil {
		x.run.keys = x.Terminal.Stops()
	}
}

// process is a running program.
type process struct {
	Program
	deadlines
	stalls time.Time // when a stopped program becomes unfit, or zero
	stopBy time.Time // when the StopTimeout ends, or zero
	tick   *time.Ticker
}

func (x *Exec) competes(how deed) (pause time.Duration, until time.Time, trouble error) {
	limit := x.Wait
	switch how {
	case compete:
		limit, trouble = limit-x.Waited, x.Trouble
	case competeAtOnce:
		x.Say("%s was handed over; competing again", x.run.lock)
	case competeLater:
		if o := x.run.m.last; o.Code == 0 {
			x.Say("%s has ended; competing again", x.Program)
		} else {
			x.Warn("%v; competing again", x.end(o))
		}
		pause = max(x.lease()/3-time.Since(x.run.began), x.lease()/30) // so that other candidates have a chance
	}
	if x.Wait != 0 {
		until = time.Now().Add(limit + pause) // the pause is no wait for another holder
	}
	return pause, until, trouble
}

func (x *Exec) begins(h *holding) { x.Job.Begin(h.Term) }

// check asks whether the program still has to run. It retries until it gets an answer or the term ends.
func (x *Exec) check(h *holding) {
	h.all.Go(func() {
		clock, retry := x.Candidate.Clock, elect.Backoff{Max: x.lease() / 3}
		for told := false; ; told = true {
			var over *exit.Error
			switch err := x.Job.Due(h.ctx); {
			case h.ctx.Err() != nil:
				return
			case errors.As(err, &over) && over.Err == nil:
				h.put(event{what: done, end: *over})
				return
			case errors.As(err, &over):
				h.put(event{what: unable, end: *over})
				return
			case err == nil:
				h.put(event{what: due})
				return
			case !told:
				x.Warn("%s can't be started yet: %v", x.Program, x.Job.Explain(err))
			}
			elect.Sleep(h.ctx, clock, retry.Pause(clock))
		}
	})
}

// start starts the program under a term that is still held.
func (x *Exec) start(h *holding) event {
	if !h.Held() {
		return event{what: lost, err: h.cause()}
	}
	n := &process{deadlines: deadlines{lease: x.lease(), grace: x.Grace}}
	var err error
	n.Program, err = x.Job.Start(h.Term, func() time.Time { // heartbeats go on during the start
		n.extend(time.Now(), h.Left())
		return n.watched()
	})
	var never *exit.Error
	switch {
	case errors.As(err, &never):
		return event{what: unable, end: *never}
	case err != nil:
		return event{what: notStarted, end: exit.Error{Code: exit.Failed, Err: err}}
	}
	n.tick = time.NewTicker(n.margin() / 4)
	x.program = n
	from := &x.run.sources
	from.ends, from.changes, from.unwatched, from.ticks = n.Done(), n.Changed(), n.Unwatched(), n.tick.C
	return event{what: started}
}

// announces says which signal the program will get.
func (x *Exec) announces(s os.Signal) {
	what := "about to give up"
	if x.run.m.turn.by != "" {
		what = "asked to hand over"
	}
	x.Say(what+" %s; %s will be signaled (%v) as soon as the other candidates have been told", x.run.lock, x.Program, s)
}

func (x *Exec) handled() {}

// hears updates what is known of the program, and reports an event to the job.
func (x *Exec) hears(e event) event {
	switch e.what {
	case ending:
		x.Job.Ending()
	case jeopardy:
		x.Job.Jeopardy(x.run.term.Term, e.err)
	case safe:
		x.Job.Safe()
	case ticked:
		return x.hears(x.look(time.Now()))
	case unwatched:
		return x.hears(x.rewatch())
	case late, overdue:
		x.run.loses(x.run.term, errLate)
	case unfit:
		x.run.loses(x.run.term, e.err)
	case paused:
		x.handleStop()
	case stopKey:
		x.handleKey()
	case exited:
		e.code = x.program.Code()
		x.exits()
	}
	return e
}

// exits takes leave of a program that has exited.
func (x *Exec) exits() {
	key := x.interrupted()
	if x.Terminal != nil {
		x.Terminal.TakeBack(x.program.Code() > 128)
	}
	if n := x.program.Strays(); n > 0 {
		x.Warn("%s left processes outside its process group; %d killed", x.Program, n)
	}
	if n := x.program.Spared(); n > 0 {
		x.Warn("%s left processes that can't be killed, because they belong to another user; %d still running without the lock %s", x.Program, n, x.run.lock)
	}
	if key != nil {
		x.run.handle(got(key))
	}
	x.program.tick.Stop()
	x.program = nil
	from := &x.run.sources
	from.ends, from.changes, from.unwatched, from.ticks = nil, nil, nil, nil
}

// look returns the event that is due for the program. Before that, heartbeats extend the program's time, unless the term
// is over.
func (x *Exec) look(now time.Time) event {
	n := x.program
	if over := x.run.term.Over().Err() != nil; !over && n.extend(now, x.run.term.Left()) {
		n.Allow(n.watched())
	}
	what := n.due(now)
	switch {
	case n.told && !now.Before(n.until) && !x.run.term.Held():
		x.Job.Stuck(fmt.Errorf("%s was killed, but had not exited by the deadline of %s", x.Program, x.run.lock))
	case what != nothing:
	case !n.stalls.IsZero() && !now.Before(n.stalls):
		n.stalls = time.Time{}
		return event{what: unfit, err: fmt.Errorf("%s was stopped for %v", x.Program, x.lease())}
	case !n.stopBy.IsZero() && !now.Before(n.stopBy):
		n.stopBy = time.Time{}
		x.Warn("%s has not exited %v after it was signaled to end; killing it", x.Program, x.StopTimeout)
		return event{what: overstayed}
	}
	return event{what: what}
}

// stop ends the program, or passes a signal on to it. If the signal also ends exec and the program is stopped, stop
// continues the program, because a stopped program can't handle the signal.
func (x *Exec) stop(a action) {
	switch a.do {
	case pass:
		x.program.Signal(a.signal)
		if !ends(a.signal) {
			return
		}
		x.program.Continue()
		if x.StopTimeout > 0 && x.program.stopBy.IsZero() {
			x.program.stopBy = time.Now().Add(x.StopTimeout)
		}
	case limit:
		x.limit(a.after)
	case kill:
		x.program.Kill()
	}
}

// limit gives the program only its grace period, even if the lock is held for longer. If the lease has expired, the
// machine was suspended, and another process may hold the lock: the program then has no time left.
func (x *Exec) limit(after event) {
	now := time.Now()
	if errors.Is(after.err, elect.ErrExpired) {
		x.program.expire(now)
	} else {
		x.program.lose(now)
	}
	why := after.err
	if after.what == lost {
		why = fmt.Errorf("%s is lost: %w", x.run.lock, why)
	}
	if left := x.program.left(now); left > 0 {
		x.Warn("%v; ending %s, which will be killed if it has not exited after %v", why, x.Program, left.Round(time.Millisecond))
	} else {
		x.Warn("%v; killing %s", why, x.Program)
	}
	x.run.handle(event{what: ticked})
}

// rewatch starts a new watchdog for the program, which could outlive this process without one.
func (x *Exec) rewatch() event {
	another, err := x.program.Rewatch()
	x.run.unwatched = nil
	switch {
	case err != nil:
		return event{what: unfit, err: fmt.Errorf("the watchdog for %s died and could not be replaced: %w", x.Program, err)}
	case another:
		x.run.unwatched = x.program.Unwatched()
		x.Warn("the watchdog for %s was killed and has been replaced", x.Program)
	}
	return event{}
}

// end returns the error that corresponds to an outcome, with its exit code.
func (x *Exec) end(o outcome) *exit.Error {
	err, lock := o.Err, x.run.lock
	switch o.why {
	case tooLate:
		err = fmt.Errorf("%s was not acquired within %v", lock, x.Wait)
		switch {
		case o.Code == NotInTime && o.Err != nil:
			err = fmt.Errorf("%w because it is held: %w", err, o.Err)
		case o.Err != nil:
			err = x.Job.Explain(fmt.Errorf("%w: %w", err, o.Err))
		}
	case wasLost:
		err = fmt.Errorf("%s was lost: %w", lock, o.Err)
	case hadToEnd:
		if err = fmt.Errorf("%s was given up: %w", lock, o.Err); errors.Is(o.Err, errLate) {
			err = fmt.Errorf("%s was lost because %w, so exec ended %s", lock, errLate, x.Program)
		}
	case notRecorded:
		err = fmt.Errorf("%s: %s SUCCEEDED, BUT IT WAS NOT RECORDED THAT %s IS DONE, so the next exec will run it again: %w", lock, x.Program, x.Job.Done().Key, o.Err)
	}
	return &exit.Error{Code: o.Code, Err: err}
}
