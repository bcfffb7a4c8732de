package execcmd

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// A Job is what is done with the lock. Its methods are called one at a time.
type Job interface {
	// Try looks at the lock once, and claims it if it can. If it returns an End, exec ends with that.
	Try(ctx context.Context) (elect.Step, *End)
	// Due asks, under the lock, whether the work to do once is still to be done. If it returns an End, exec ends with that;
	// an End without an error means that the work was done already. After an error, exec asks again.
	Due(ctx context.Context) (*End, error)
	// Begin is called when the lock is held, before the first heartbeat; Over once the lock is released or lost.
	Begin(t *elect.Term)
	Over()
	// Jeopardy says that a heartbeat of the term has failed; Safe, that one was acknowledged again.
	Jeopardy(t *elect.Term, err error)
	Safe()
	// Start starts the program. The program must be gone at until, even if this process is stopped or killed, unless its
	// Allow extends that. The error is a child.StartError if another attempt can't succeed either.
	Start(t *elect.Term, until time.Time) (Program, error)
	// Done returns what is recorded when the program succeeds; if it has no key, nothing is.
	Done() table.Due
	// Explain adds a hint to an error of the database.
	Explain(err error) error
}

// A Program is a running program, with all that it has started.
type Program interface {
	Done() <-chan struct{} // closed when nothing of it is left
	Code() int             // its exit code, once Done is closed
	Strays() int           // how many processes had left its group, and were killed, once Done is closed
	Spared() int           // how many that it left behind run on, since they belong to other users, once Done is closed
	Pid() int              // the number of its process, and of its group
	Signal(s os.Signal)    // for the group
	Continue()             // continues the group if it was stopped
	Kill()                 // the group

	Changed() <-chan struct{} // has a value after the program was stopped or continued
	Stopped() os.Signal       // by which it was stopped, or nil

	Allow(until time.Time)      // the watchdog kills it then, unless Allow is called again
	Unwatched() <-chan struct{} // closed when the watchdog is gone
	Rewatch() (bool, error)     // starts another, and reports whether it did: the program may have ended
}

// A Terminal is exec's controlling terminal: see child.Terminal.
type Terminal interface {
	Stops() <-chan os.Signal
	Lend(group int) bool
	Lent() bool
	TakeBack(killed bool)
	Suspend() bool
}

// Exec runs a program while a lock is held.
type Exec struct {
	Candidate *elect.Candidate
	Job       Job
	Program   string // its name
	Grace     time.Duration
	Patience
	Once     bool             // Due is asked
	Handover bool             // an end is announced, and requests are accepted
	Restart  bool             // the program is run again
	Signals  <-chan os.Signal // see Signals
	Terminal Terminal         // or nil

	// StopTimeout is how long the program may take to end after a signal that ends exec; 0: forever.
	StopTimeout time.Duration

	Say  func(format string, args ...any) // what happens
	Warn func(format string, args ...any) // what went wrong

	Notices Notices
	Asks    <-chan struct{} // Run receives from it while it runs, to show that it does; or nil
}

// Patience is how long exec waits for the lock.
type Patience struct {
	Wait    time.Duration // 0: forever
	Waited  time.Duration // of Wait, before Run
	Trouble error         // why the last look before Run failed
}

// Signals returns a channel of the signals that exec obeys, or passes on to the program. They no longer end this process.
func Signals() <-chan os.Signal {
	c := make(chan os.Signal, 16)
	signal.Notify(c, passedOn...)
	return c
}

// Endings returns the signals that end exec.
func Endings() []os.Signal { return slices.Clone(endings) }

// Run competes for the lock, and runs the program while it is held. It returns once nothing of the program is left, and the
// lock is released or lost. The end of ctx ends the wait for the lock.
func (x *Exec) Run(ctx context.Context) End {
	r := &runner{Exec: x, ctx: ctx, events: make(chan event), trouble: x.Trouble}
	r.m = machine{once: x.Once, handover: x.Handover, restart: x.Restart}
	r.handle(event{what: begun})
	for r.m.phase != ended {
		for _, e := range r.await() {
			r.receive(e)
		}
		if r.program != nil {
			r.handle(r.due(time.Now()))
		}
	}
	return r.end(r.m.last)
}

// runner is one run of exec: the machine, and what runs beside it.
type runner struct {
	*Exec
	m      machine
	ctx    context.Context
	events chan event // of the wait for the lock

	trouble error     // why the last look failed
	wait    *wait     // while exec competes, or nil
	term    *holding  // while the lock is held, or nil
	began   time.Time // of the last term
	program *process  // while it runs, or nil
	noticed noticed
}

// await waits for events. A signal, and the end of the wait, come before all others: the program must not start after them.
func (r *runner) await() (all []event) {
	var last event
	select {
	case s := <-r.Signals:
		all = append(all, got(s))
	case <-r.wait.ends():
	case last = <-r.events:
	case <-r.term.happens():
		last, _ = r.term.events.Next()
	case <-r.program.ends():
		if s := r.interrupted(); s != nil {
			all = append(all, got(s))
		}
		last = event{what: exited, code: r.program.Code()}
	case <-r.program.ticks():
		r.program.extend(r.term)
	case <-r.program.changes():
		r.handleStop()
	case <-r.program.unwatched():
		last = r.rewatch()
	case <-r.keys():
		r.handleKey()
	case <-r.Asks:
	}
	for len(r.Signals) > 0 {
		all = append(all, got(<-r.Signals))
	}
	if r.wait.isOver() {
		all = append(all, event{what: waitOver})
	}
	return append(all, last)
}

func got(s os.Signal) event {
	if ends(s) {
		return event{what: ending, signal: s}
	}
	return event{what: signaled, signal: s}
}

// receive notes what has begun or ended, and passes the event on to the machine.
func (r *runner) receive(e event) {
	switch e.what {
	case elected:
		r.term, r.began = hold(e.term, r.lease()/3), time.Now()
		r.wait = r.wait.end()
	case withdrawn, unable:
		r.wait = r.wait.end()
	case exited:
		r.takeBack()
		if n := r.program.Strays(); n > 0 {
			r.Warn("%s had left processes outside its group: killed %d", r.Program, n)
		}
		if n := r.program.Spared(); n > 0 {
			r.Warn("%s has left processes that belong to another user, and can't be killed: %d of them run on, without %s", r.Program, n, r.name())
		}
		r.program = r.program.end()
	}
	r.handle(e)
}

// handle does what an event asks for, and handles the events that follow from it.
func (r *runner) handle(e event) {
	r.notice(e)
	for _, a := range r.m.on(e) {
		r.handle(r.do(a))
	}
}

func (r *runner) do(a action) event {
	switch a.do {
	case compete, competeAtOnce, competeLater:
		r.compete(a.do)
	case withdraw:
		r.wait.withdraw()
	case keep:
		r.keep()
	case check:
		r.check()
	case start:
		return r.start()
	case watchRequests:
		r.term.WatchRequests()
	case announce:
		r.announce(a.signal)
	case pass:
		r.pass(a.signal)
	case limit:
		r.limit(a.after)
	case kill:
		r.program.Kill()
	case release, releaseUndone, recordDone:
		return r.release(a.do)
	case abandon:
		r.abandon()
	}
	return event{}
}

func (r *runner) name() string { return r.Candidate.Names[0] }

func (r *runner) lease() time.Duration { return r.Candidate.LeaseRecord.Lease }
