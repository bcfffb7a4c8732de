package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
)

// hold represents one response, during which a program waits for a lock, and then holds the lock for one term. Only the
// goroutine of run may use the fields machine, reads and cause. Other goroutines call put to send events to that
// goroutine, and call status to read the hold's state.
type hold struct {
	owner
	account
	agent *Agent
	log   *slog.Logger

	machine machine
	events  *loop.Inbox[event]
	lines   *lines
	reads   attention // whether the program reads its lines
	wait    wait
	term    term
	cause   event         // the reason for a later loss: the event that made the hold doubtful, or the end of the term if it came before won
	ended   chan struct{} // closed once the hold is over
}

// owner is the program that a hold belongs to, with what it asked for. It does not change once the hold has begun.
type owner struct {
	id     string // of the hold
	holder string // the id in the lock table
	asked  *request
	who    peer.Identity
	peer   process
}

// wait is the part of a hold that waits for the lock.
type wait struct {
	ctx     context.Context // canceled when the hold stops waiting
	quit    context.CancelCauseFunc
	locker  locker
	decided chan struct{} // closed once the lock has been won or refused
}

// term is the term for which the lock is held. The fields lock and names are set before the phase becomes held.
type term struct {
	lock     holding
	names    []string
	returned chan bool     // receives a value when the lock is to be released: whether the key is done; buffered
	mute     chan struct{} // closed to stop the heartbeats
}

// event is something that happened to a hold.
type event struct {
	what   happening
	lock   holding // for won
	err    error
	reason string // for stopAsked
	done   bool   // for asked: whether to record the key as done
}

func (h *hold) put(e event) { h.events.Put(e) }

// options returns the options that locks of all kinds have in common.
func (h *hold) options() spindle.CommonOption {
	r, a := h.asked, h.agent
	return spindle.Options(
		spindle.WithLease(r.lease), spindle.WithID(h.holder), spindle.WithValue(r.value), spindle.WithLogger(a.Warnings),
		options.Option(func(c *options.Config) {
			c.Shared = true
			c.Store, c.Requests, c.Clock = a.programs.counted(h, a.Locks.Store), &a.requests, a.clock
			c.Owner = h.who.Key
			c.Process = fmt.Sprintf("agent %p, %s", a, cmp.Or(h.who.Key, h.id)) // in queues, each program counts as a separate process
			c.Mute, c.Happened = h.term.mute, h.happened
			c.HoldOff = a.promises.left
			c.Look = r.lease / 20 // polls are cheap because they are shared, and the lock of a killed program is taken over sooner
			if a.Notified != nil {
				a.Notified(c)
			}
		}))
}

// happened passes an event of the term on to run.
func (h *hold) happened(e elect.TermEvent) {
	switch e.What {
	case elect.Beat:
		h.put(event{what: beat})
	case elect.InJeopardy:
		h.put(event{what: jeopardy, err: e.Err})
	case elect.Lost:
		h.put(event{what: termEnded, err: e.Err})
	}
}

// begin starts to acquire the lock, and to handle events.
func (h *hold) begin() {
	go h.acquire()
	go h.run()
}

// acquire waits for the lock, and releases it once run says so.
func (h *hold) acquire() {
	if h.asked.wait > 0 {
		defer time.AfterFunc(h.asked.wait, func() { h.wait.quit(errTimeout) }).Stop()
	}
	var late *time.Timer // limits how long the release may take; nil if the lock was not acquired
	err := h.wait.locker(h.wait.ctx, func(l holding) (done bool) {
		h.put(event{what: won, lock: l})
		done = <-h.term.returned
		late = time.AfterFunc(h.asked.lease, func() { h.put(event{what: released, err: context.DeadlineExceeded}) })
		return done
	})
	if late == nil {
		h.put(event{what: refused, err: err})
		return
	}
	late.Stop()
	h.put(event{what: released, err: err})
}

// run handles events until the hold is over.
func (h *hold) run() {
	defer close(h.ended)
	h.reads.Progress()
	reading := time.NewTicker(h.reads.every())
	defer reading.Stop()
	for h.machine.phase != over {
		select {
		case <-reading.C:
			if h.reads.stalled(h.peer.Unread()) {
				h.handle(event{what: stalls, err: errStalled})
			}
		case <-h.events.Ready():
			for e, ok := h.events.Next(); ok; e, ok = h.events.Next() {
				h.handle(e)
			}
		}
	}
	h.events.Close()
	h.agent.ended(h)
	h.agent.programs.end(h)
}

func (h *hold) handle(e event) {
	wasWaiting := h.machine.phase <= quitting
	switch {
	case e.what == won:
		h.term.lock, h.term.names = e.lock, namesOf(h.asked, e.lock)
		if e.lock.Left() > 0 && h.status().ended != nil { // a semaphore tries again if it loses a slot while it checks it
			e.what = wonAgain
			h.change(func(s *status) { s.ended = nil })
		}
	case e.what == termEnded:
		h.change(func(s *status) { s.ended = e.err })
		if wasWaiting {
			h.cause = e
		}
	}
	actions := h.machine.on(e.what)
	h.change(func(s *status) { s.phase = h.machine.phase })
	for _, a := range actions {
		h.do(a, e)
	}
	if wasWaiting && h.machine.phase > quitting {
		close(h.wait.decided)
	}
}

func (h *hold) do(a action, e event) {
	switch a {
	case sayHeld:
		h.sayHeld()
	case sayUntil:
		h.lines.add(line{Event: "until"})
	case sayJeopardy:
		h.log.Warn("jeopardy: a heartbeat failed", "err", e.err)
		h.lines.add(line{Event: "jeopardy", Detail: e.err.Error()})
	case sayStop:
		h.log.Info("asked to release it", "reason", e.reason)
		h.lines.add(line{Event: "stop", Reason: e.reason})
	case sayLost:
		h.sayLost(e)
	case sayRefused:
		h.sayRefused(e.err)
	case sayReleased:
		h.sayReleased(e.err)
	case doubt:
		h.cause = e
		time.AfterFunc(longestDoubt, func() { h.put(event{what: doubted}) })
	case quit:
		why := errUnwanted
		switch e.what {
		case stopAsked:
			why = fmt.Errorf("%w: %s", errAsked, e.reason)
		case stalls:
			why = errStalled
		}
		h.wait.quit(why)
	case mute:
		close(h.term.mute)
	case release:
		h.lift()
		done := e.done && h.status().lost == "" // the agent records no key after it has reported a loss
		h.change(func(s *status) { s.done, s.gone = done, e.what == gone })
		h.term.returned <- done
	case discard:
		h.term.returned <- false
	case end:
		h.lines.end()
	}
}

// longestDoubt is how long the agent waits for the second sign that a program has died. The two signs are the end of
// its process and the end of its stream. After a kill, both signs usually come within this time. They take longer if
// the process has to free gigabytes of memory, or writes a core dump.
const longestDoubt = 100 * time.Millisecond

var (
	errUnwanted = errors.New("the program no longer waits for the lock")
	errAsked    = errors.New("this request was asked to stop waiting")
	errTimeout  = errors.New("timed out waiting for the lock")
	errStalled  = errors.New("the program does not read its lines")
	errClosed   = errors.New("the program closed the connection, but may still be running")
	errExited   = errors.New("the program has ended, but another process still has its connection open")
)

func (h *hold) sayHeld() {
	h.agent.promises.keep(h)
	token, tableName := h.term.lock.Token(), h.agent.TableName
	h.log.Info("held", "token", token)
	said := line{Event: "held", Names: h.term.names, Token: int64(token), Fence: fences(tableName, h.term.names, token)}
	if run, ok := h.term.lock.(lock.Run); ok {
		due := table.Due{Key: run.Key(), Period: h.asked.every}
		said.Key, said.Record = due.Key, mutations(tableName, table.Record(h.term.names[0], table.Token(token), due, h.holder)...)
	}
	h.lines.add(said)
}

// reasons lists errors, and the names that lines and problems use for them.
var reasons = []struct {
	err  error
	name string
}{
	{errBusy, "busy"}, {errDone, "done"}, {lock.ErrPassed, "passed"},
	{errTimeout, "timeout"}, {errAsked, "stopping"}, {errUnwanted, "stopping"},
	{errStalled, "stalled"}, {errClosed, "closed"}, {errExited, "exited"}, {spindle.ErrSuperseded, "superseded"}, {spindle.ErrExpired, "expired"},
}

func reasonOf(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return ""
}

func (h *hold) sayLost(e event) {
	if e.what == doubted || e.what == won {
		e = h.cause
	}
	why := e.err
	switch e.what {
	case streamEnds:
		why = errClosed
	case exits:
		why = errExited
	}
	h.change(func(s *status) { s.lost = why.Error() })
	if e.what != termEnded { // the lock has already logged its own loss
		h.log.Warn("lost", "reason", why)
	}
	h.lines.add(line{Event: "lost", Reason: reasonOf(why), Detail: why.Error()})
}

func (h *hold) sayRefused(err error) {
	h.change(func(s *status) { s.refusal = err })
	quit := context.Cause(h.wait.ctx)
	said := line{Event: "refused", Reason: reasonOf(errors.Join(err, quit)), Detail: err.Error()}
	if said.Reason == "stopping" && errors.Is(quit, errAsked) {
		said.Detail = quit.Error()
	}
	switch said.Reason {
	case "done":
		said = line{Event: "done"}
	case "timeout":
		said.Event, said.Reason = "timeout", ""
	}
	h.log.Debug("not acquired", "reason", err)
	h.lines.add(said)
}

func (h *hold) sayReleased(err error) {
	h.change(func(s *status) {
		if err == nil && errors.Is(s.ended, spindle.ErrSuperseded) {
			err = s.ended // if an elector finds, while releasing its lock, that the lock was superseded, it reports no error
		}
		s.failure = err
	})
	if err != nil {
		h.log.Warn("not released", "err", err)
	} else {
		h.log.Info("released")
	}
}

// stop asks the program to release the lock. If the program is a leader, stop first announces to the followers that the
// lock will be released.
func (h *hold) stop(reason string) {
	h.change(func(s *status) { s.stops = reason })
	if h.status().phase == held {
		if term, leads := h.term.lock.(spindle.Term); leads {
			go func() { _ = term.StepDown(context.Background()) }() // later cancels the term's context, which calls ask
			return
		}
	}
	h.ask()
}

// ask asks the program to release the lock. If stop has recorded no reason, the reason must be a handover to another
// candidate.
func (h *hold) ask() {
	h.put(event{what: stopAsked, reason: cmp.Or(h.status().stops, "handover")})
}

// stamp fills in the times of a line just before it is sent, and records the time that the line promises.
func (h *hold) stamp(l *line) {
	switch l.Event {
	case "hello":
		now := h.agent.clocks()
		l.Now = &now
	case "held", "until":
		now, made := h.agent.clocks(), h.agent.clock.Now() // before the time that is left is known
		left := h.term.lock.Left()
		until := now.until(left)
		l.Until, l.Left = &until, max(left.Milliseconds(), 0)
		h.promise(promise{made, left})
	}
}
