package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
)

// A Program is a running program, with its process group.
type Program interface {
	Done() <-chan struct{}      // closed when the program has exited and its group has been killed
	Code() int                  // the exit code, once Done is closed
	Left() (killed, spared int) // counts processes that had left the group, once Done is closed
	Pid() int                   // the id of the process and of its group
	Signal(s os.Signal)         // sends a signal to the group
	Continue()                  // continues the group if it was stopped; Stopped returns nil from then on, until the next stop
	Kill()                      // kills the group

	Changed() <-chan struct{} // has a value after the program was stopped or continued
	Stopped() os.Signal       // the signal that stopped the program, or nil

	Allow(until time.Time)      // lets the watchdog kill the group at that time, unless Allow is called again
	Unwatched() <-chan struct{} // closed when the watchdog has exited
	Rewatch() (bool, error)     // starts a new watchdog; false if the program has exited
}

// programs is the edge for exec, which runs a program while a lock is held.
type programs struct {
	*execution
	*runner
	terminal Terminal      // or nil
	waited   time.Duration // the part of --wait that elapsed before the competition
	launch   func(t *elect.Term, until func() time.Time) (Program, error)
	program  *process // while it runs, or nil
}

func (x *execution) newPrograms(signals <-chan os.Signal, tty Terminal, waited time.Duration) *programs {
	p := &programs{execution: x, terminal: tty, waited: waited, launch: x.start}
	p.runner = &runner{of: &x.reports, edge: p, lock: x.name, say: x.say, warn: x.complain, events: loop.NewInbox[event](),
		m: machine{once: x.once.wanted(), handover: x.handover, restart: x.restart, words: words{name: x.name, program: x.args[0], patience: x.wait}}}
	p.signals = signals
	if tty != nil {
		p.keys = tty.Stops()
	}
	return p
}

// run competes for the lock, and runs the program while it holds the lock. When run returns, the program's process
// group has exited, and the lock has been released, lost or left to expire. It returns nil if exec succeeded, and
// otherwise a *terminal.Exit.
func (p *programs) run() error {
	p.loop()
	if p.m.last != (terminal.Exit{}) {
		return &p.m.last
	}
	return nil
}

// process is a running program.
type process struct {
	Program
	deadlines
	killed bool      // exec has killed it, and it had a moment to exit
	stalls time.Time // when a stopped program becomes unfit, or zero
	runBy  time.Time // when --run-timeout ends, or zero
	stopBy time.Time // when --stop-timeout ends, or zero
	tick   *time.Ticker
	spare  func() // stops watching its progress
}

func (p *programs) competes(how deed) (pause time.Duration, until time.Time, trouble error) {
	limit := p.wait
	switch how {
	case compete:
		limit, trouble = limit-p.waited, p.trouble
	case competeAtOnce:
		p.say("%s was handed over; competing again", p.lock)
	case competeLater:
		if o := p.m.last; o.Code == 0 {
			p.say("%s has ended; competing again", p.args[0])
		} else {
			p.warn("%v; competing again", &o)
		}
		pause = max(p.lease/3-time.Since(p.began), p.lease/30) // so that other candidates have a chance
	}
	if p.wait != 0 {
		until = time.Now().Add(limit + pause) // --wait does not include the pause
	}
	return pause, until, trouble
}

func (p *programs) begins(h *holding) {
	p.setToken(h.Token())
	p.m.key = p.todo.Key
	if p.sized() {
		p.slot = h.Names()[0]
	}
	p.lock = p.held()
	p.say("holding %s, token %v", p.lock, h.Token())
	p.acquired(h.Term)
	if p.healthcheck != "" {
		p.before(p.runner, h, func(ctx context.Context, r role) error {
			return p.shell(ctx, p.healthcheck+" "+string(r), h.Token(), child.Command{Aside: true})
		})
	}
	p.does(true, "holding %s, token %v; running %s", p.lock, h.Token(), p.args[0])
}

func (p *programs) over() {
	p.setToken(0)
	p.reports.over()
	p.ranOut()
	p.does(false, "%s is no longer held", p.lock)
	p.lock = p.name
}

// check asks whether the program still has to run. It retries until it gets an answer or the term ends.
func (p *programs) check(h *holding) {
	h.all.Go(func() {
		clock, retry := p.candidate.Clock, elect.Backoff{Max: p.lease / 3}
		for told := false; ; told = true {
			var over *terminal.Exit
			switch err := p.due(h.ctx); {
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
				p.warn("%s can't be started yet: %v", p.args[0], p.Explain(err))
			}
			elect.Sleep(h.ctx, clock, retry.Pause(clock))
		}
	})
}

// start starts the program if the term is still held.
func (p *programs) start(h *holding) event {
	if !h.Held() {
		return event{what: lost, err: h.cause()}
	}
	n := &process{deadlines: deadlines{lease: p.lease, grace: p.grace}}
	var err error
	n.Program, err = p.launch(h.Term, func() time.Time { // heartbeats continue while the program starts
		n.extend(time.Now(), h.Left())
		return n.watched()
	})
	var never *terminal.Exit
	switch {
	case errors.As(err, &never):
		return event{what: unable, end: *never}
	case err != nil:
		return event{what: notStarted, end: terminal.Exit{Code: terminal.Failed, Err: err}}
	}
	if p.runTimeout > 0 {
		n.runBy = time.Now().Add(p.runTimeout)
	}
	n.spare = p.watch(p, h)
	n.tick = time.NewTicker(n.margin() / 4)
	p.program = n
	from := &p.sources
	from.ends, from.changes, from.unwatched, from.ticks = n.Done(), n.Changed(), n.Unwatched(), n.tick.C
	return event{what: started}
}

// announces says which signal the program will get.
func (p *programs) announces(s os.Signal) {
	what := "about to give up"
	if p.m.turn.by != "" {
		what = "asked to hand over"
	}
	p.say(what+" %s; %s will get the signal %q as soon as the other candidates have been told", p.lock, p.args[0], s)
}

// handled lets only a program that has not been signaled to end be checked, and watched for progress.
func (p *programs) handled() {
	checked := role("")
	if p.m.phase == running || p.m.phase == announcing {
		checked = active
	} else if p.m.phase == stopping {
		p.program.spare()
	}
	p.role.Store(checked)
}

// hears updates the program's state for an event, and reports the event.
func (p *programs) hears(e event) event {
	switch e.what {
	case ending:
		p.unit.Stopping()
	case jeopardy:
		p.warn("jeopardy: %s is still held, but will be lost in %s unless a heartbeat is acknowledged: %v", p.lock, terminal.Short(p.term.Left()), e.err)
	case safe:
		p.log(slog.LevelInfo, "safe: heartbeats for %s are acknowledged again", p.lock) // even with --quiet
	case ticked:
		return p.hears(p.look(time.Now()))
	case unwatched:
		return p.hears(p.rewatch())
	case late, overdue:
		p.reportLoss(p.term, errLate)
	case unfit:
		if e.of != nil && p.m.phase == stopping { // a health check or --stall, which no longer apply
			return event{}
		}
		p.reportLoss(p.term, e.err)
	case paused:
		p.handleStop()
	case stopKey:
		p.handleKey()
	case exited:
		e.code = p.program.Code()
		p.exits()
	}
	return e
}

// exits cleans up after a program that has exited.
func (p *programs) exits() {
	var key os.Signal // the signal, such as Ctrl-C's, that ended the program while it had the terminal; or nil
	if p.terminal != nil && p.terminal.Lent() {
		key = interrupt(p.program.Code())
	}
	if p.terminal != nil {
		p.terminal.TakeBack(p.program.Code() > 128)
	}
	killed, spared := p.program.Left()
	if killed > 0 {
		p.warn("%s left processes outside its process group; %d killed", p.args[0], killed)
	}
	if spared > 0 {
		p.warn("%s left processes that can't be killed, for example because they belong to another user; %d still running without the lock %s", p.args[0], spared, p.lock)
	}
	if key != nil { // the key's signal did not reach exec, but must end exec too, even with --restart
		p.m.signal = key
	}
	p.program.spare()
	p.program.tick.Stop()
	p.program = nil
	from := &p.sources
	from.ends, from.changes, from.unwatched, from.ticks = nil, nil, nil, nil
}

// look first updates the program's deadline from the time left on the lease, unless the term is over. It then returns
// the event that is due for the program.
func (p *programs) look(now time.Time) event {
	n := p.program
	if over := p.term.Over().Err() != nil; !over && n.extend(now, p.term.Left()) {
		n.Allow(n.watched())
	}
	what := n.due(now)
	switch {
	case n.killed && !now.Before(n.until) && !p.term.Held():
		p.stuck(fmt.Errorf("%s was killed, but had not exited by the deadline of %s", p.args[0], p.lock))
	case what != nothing:
	case !n.stalls.IsZero() && !now.Before(n.stalls):
		n.stalls = time.Time{}
		return event{what: unfit, err: fmt.Errorf("%s was stopped for %v", p.args[0], p.lease)}
	case !n.runBy.IsZero() && !now.Before(n.runBy):
		n.runBy = time.Time{}
		return event{what: unfit, err: fmt.Errorf("%s has run for %v", p.args[0], p.runTimeout)}
	case !n.stopBy.IsZero() && !now.Before(n.stopBy):
		n.stopBy = time.Time{}
		p.warn("%s has not exited %v after it was signaled to end; killing it", p.args[0], p.limit)
		return event{what: overstayed}
	}
	return event{what: what}
}

// stop ends the program, or passes a signal on to it. If the signal is one that ends exec, stop also continues a
// stopped program, so that the program can handle the signal, and starts the time limit of --stop-timeout.
func (p *programs) stop(a action) {
	switch a.do {
	case pass:
		p.program.Signal(a.signal)
		if !ends(a.signal) {
			return
		}
		p.program.Continue()
		if p.limit > 0 && p.program.stopBy.IsZero() {
			p.program.stopBy = time.Now().Add(p.limit)
		}
	case limit:
		p.bound(a.after)
	case kill:
		p.program.Kill()
		p.program.killed = true
	}
}

// bound gives the program only its grace period, even if the lock is held for longer. If the lease has already expired,
// for example while the machine was suspended, the program has no time left, because another process may hold the lock.
func (p *programs) bound(after event) {
	now := time.Now()
	if errors.Is(after.err, elect.ErrExpired) {
		p.program.expire(now)
	} else {
		p.program.lose(now)
	}
	why := after.err
	if after.what == lost {
		why = fmt.Errorf("%s is lost: %w", p.lock, why)
	}
	if left := p.program.left(now); left > 0 {
		p.warn("%v; ending %s, which will be killed if it has not exited after %v", why, p.args[0], left.Round(time.Millisecond))
	} else {
		p.warn("%v; killing %s", why, p.args[0])
	}
	p.handle(event{what: ticked})
}

// rewatch starts a new watchdog. Without a watchdog, the program could outlive this process.
func (p *programs) rewatch() event {
	another, err := p.program.Rewatch()
	p.unwatched = nil
	switch {
	case err != nil:
		return event{what: unfit, err: fmt.Errorf("the watchdog for %s died and could not be replaced: %w", p.args[0], err)}
	case another:
		p.unwatched = p.program.Unwatched()
		p.warn("the watchdog for %s was killed and has been replaced", p.args[0])
	}
	return event{}
}
