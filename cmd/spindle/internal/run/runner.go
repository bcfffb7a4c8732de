package run

import (
	"context"
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
)

// edge is the part that differs between exec and guard: it starts and ends what runs under the lock. The main loop
// calls all methods except try, one at a time, so none of them may wait for Spanner. The method try runs in a goroutine
// of its own.
type edge interface {
	// competes returns the pause before the first poll, the time at which to give up (zero: never), and the error of
	// the last poll.
	competes(how deed) (pause time.Duration, until time.Time, trouble error)
	// try polls the lock once, and claims it if possible. If it returns a *terminal.Exit, the command ends with it.
	try(ctx context.Context) (elect.Step, *terminal.Exit)
	begins(h *holding) // called before the first heartbeat
	over()             // called when a term has ended
	check(h *holding)  // leads to an event later, such as due
	start(h *holding) event
	stop(a action)
	announces(s os.Signal)
	// hears is called before the machine handles an event, and can replace the event.
	hears(e event) event
	handled() // called after the actions for an event, and before stop
}

// runner is one run of exec or guard: the state machine, and everything that runs in parallel with it.
type runner struct {
	of   *reports
	edge edge
	lock string                           // what messages call the lock
	say  func(format string, args ...any) // logs progress
	warn func(format string, args ...any) // logs a problem
	m    machine

	events *loop.Inbox[event]
	sources
	withdraw context.CancelFunc // ends the competition for the lock
	until    time.Time          // when the wait for the lock ends, or zero
	term     *holding           // while the lock is held, or nil
	began    time.Time          // when the last term began
}

// loop competes for the lock and holds it until the machine has ended.
func (r *runner) loop() {
	for r.handle(event{what: begun}); r.m.phase != ended; {
		for _, e := range r.await() {
			r.receive(e)
		}
	}
}

// await waits for an event and returns it. If exec has also received signals, await returns the signals first. Exec
// therefore does not start the program after a signal to end, or suspend itself before it has handled the signals.
func (r *runner) await() (all []event) {
	var last event
	select {
	case s := <-r.signals:
		all = append(all, got(s))
	case <-r.events.Ready():
		last, _ = r.events.Next()
	case <-r.ends:
		last = event{what: exited}
	case <-r.ticks:
		last = event{what: ticked}
	case <-r.changes:
		last = event{what: paused}
	case <-r.unwatched:
		last = event{what: unwatched}
	case <-r.keys:
		last = event{what: stopKey}
	case <-r.of.asks:
	}
	for len(r.signals) > 0 {
		all = append(all, got(<-r.signals))
	}
	return append(all, last)
}

func got(s os.Signal) event {
	if ends(s) {
		return event{what: ending, signal: s}
	}
	return event{what: signaled, signal: s}
}

// receive handles an event, unless the event belongs to an earlier term.
func (r *runner) receive(e event) {
	switch {
	case e.of != nil && e.of != r.term:
		return
	case e.term != nil:
		r.term, r.began = hold(e.term, r.of.lease()/3, r.events), time.Now()
		r.of.told.trouble = "" // the poll before the claim has succeeded
		r.term.book, r.of.lastOwn = r.of.book(e.term), e.term.Token()
		e.late = !r.until.IsZero() && !r.began.Before(r.until) // the context's timer may be late
	}
	r.handle(e)
}

// handle carries out the actions for an event, and handles the events that result from them.
func (r *runner) handle(e event) {
	if e = r.edge.hears(e); e.what == nothing {
		return
	}
	if e.what == lost {
		r.reportLoss(r.term, e.err)
		r.countLoss(r.term)
	}
	for _, a := range r.m.on(e) {
		r.handle(r.do(a))
	}
	r.edge.handled()
}

func (r *runner) do(a action) event {
	switch a.do {
	case compete, competeAtOnce, competeLater:
		r.compete(a.do)
	case withdraw:
		r.withdraw()
	case keep:
		r.term.kept = true
		r.edge.begins(r.term)
		r.term.Start()
	case check:
		r.edge.check(r.term)
	case start:
		return r.edge.start(r.term)
	case watchRequests:
		r.term.WatchRequests()
	case announce:
		r.edge.announces(a.signal)
		r.term.book.Leaving()
		r.term.Announce()
	case pass, limit, kill:
		r.edge.handled() // a health check that the stop makes fail must not count
		r.edge.stop(a)
	case release, releaseUndone, recordDone, abandon:
		return r.end(a.do)
	}
	return event{}
}
