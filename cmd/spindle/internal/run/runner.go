package run

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// A Job connects an Exec to a lock and a program. Exec calls its methods one at a time.
type Job interface {
	// Try polls the lock once, and claims it if possible. If Try returns an End, exec ends with it.
	Try(ctx context.Context) (elect.Step, *End)
	// Due checks, while the lock is held, whether the program still has to run. If so, it returns nil. Otherwise, it
	// returns the End for exec, without an error if the work was already done. If Due returns an error, exec calls it
	// again.
	Due(ctx context.Context) (*End, error)
	// Begin is called when the lock has been acquired, before the first heartbeat. Over is called after the lock has
	// been released or lost.
	Begin(t *elect.Term)
	Over()
	// Jeopardy is called when a heartbeat of the term has failed, and Safe when a heartbeat is acknowledged again.
	Jeopardy(t *elect.Term, err error)
	Safe()
	// Start starts the program. The program must exit before the time that until returns, even if this process is stopped
	// or killed. Start calls until when it begins and just before the program begins. Later, the program's Allow can
	// extend that time. If trying again would not help, the error is a *child.StartError.
	Start(t *elect.Term, until func() time.Time) (Program, error)
	// Done returns the record to write when the program succeeds. If the record has no key, nothing is written.
	Done() table.Due
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

// A Terminal is exec's controlling terminal. See child.Terminal.
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
	Once     bool             // ask Due before the program starts
	Handover bool             // announce a stop, and accept requests
	Restart  bool             // run the program again
	Signals  <-chan os.Signal // see Signals
	Terminal Terminal         // or nil

	// StopTimeout is how long the program may take to exit after a signal that ends exec, or 0 for no limit.
	StopTimeout time.Duration

	Say  func(format string, args ...any) // logs progress
	Warn func(format string, args ...any) // logs a problem

	Notices Notices
	Asks    <-chan struct{} // Run receives from it to show that its loop is running; or nil
}

// Patience is how long exec waits for the lock.
type Patience struct {
	Wait    time.Duration // 0 for no limit
	Waited  time.Duration // the part of Wait that elapsed before Run
	Trouble error         // why the last poll before Run failed
}

// Signals returns a channel for the signals that exec handles or passes on to the program. After the call, these
// signals no longer kill this process.
func Signals() <-chan os.Signal {
	c := make(chan os.Signal, 16)
	signal.Notify(c, passedOn...)
	return c
}

// Endings returns the signals that end exec.
func Endings() []os.Signal { return slices.Clone(endings) }

// Run competes for the lock, and runs the program while it holds the lock. When Run returns, all of the program's
// processes have exited, and the lock has been released or lost. If ctx ends, Run stops waiting for the lock.
func (x *Exec) Run(ctx context.Context) End {
	r := &runner{Exec: x, ctx: ctx, events: make(chan event), trouble: x.Trouble}
	r.m = machine{once: x.Once, handover: x.Handover, restart: x.Restart}
	r.handle(event{what: begun})
	for r.m.phase != ended {
		for _, e := range r.await() {
			r.receive(e)
		}
		if r.program != nil {
			r.program.extend(r.term) // heartbeats were acknowledged, too, while exec started a program or a watchdog
			r.handle(r.due(time.Now()))
		}
	}
	return r.end(r.m.last)
}

// runner is one run of exec. It has the state machine, and everything that runs in parallel with it.
type runner struct {
	*Exec
	m      machine
	ctx    context.Context
	events chan event // from the wait for the lock

	trouble error     // why the last poll failed
	wait    *wait     // while exec competes, or nil
	term    *holding  // while the lock is held, or nil
	began   time.Time // when the last term began
	program *process  // while the program runs, or nil
	noticed noticed
}

// await waits for an event and returns it. If exec has also received signals, or if it has waited for the lock as long
// as it may, await returns these events first, so that the program does not start after them, and exec does not stop
// before it has handled them.
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
	case <-r.program.changes():
		last = event{what: paused}
	case <-r.program.unwatched():
		last = r.rewatch()
	case <-r.keys():
		last = event{what: stopKey}
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

// receive passes an event on to the machine. If the event begins or ends a wait, a term or a program, or if it is about
// stopping at a terminal, receive handles it first.
func (r *runner) receive(e event) {
	switch e.what {
	case elected:
		r.term, r.began = hold(e.term, r.lease()/3), time.Now()
		r.wait = r.wait.end()
	case withdrawn, unable:
		r.wait = r.wait.end()
	case paused:
		r.handleStop()
	case stopKey:
		r.handleKey()
	case exited:
		r.takeBack()
		if n := r.program.Strays(); n > 0 {
			r.Warn("%s left processes outside its process group; %d killed", r.Program, n)
		}
		if n := r.program.Spared(); n > 0 {
			r.Warn("%s left processes that can't be killed, because they belong to another user; %d still running without the lock %s", r.Program, n, r.name())
		}
		r.program = r.program.end()
	}
	r.handle(e)
}

// handle carries out the actions for an event, and handles the events that result from them.
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
