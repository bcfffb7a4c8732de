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
	"github.com/spindle-lock/spindle/lock"
)

// hold is one response: a program waits for a lock, and then holds it for one term. Only the goroutine that executes
// run may use machine, reads and doubts. Other goroutines send events to it with put, and read the account.
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
	lock    locker
	cause   event         // of a loss that follows later: what began the doubt, or the end of a term that begins only now
	mute    chan struct{} // closed to stop the heartbeats
	ended   chan struct{} // closed once the hold is over
}

// owner is the program that a hold belongs to, with what it asked for. It never changes.
type owner struct {
	id     string // of the hold
	holder string // the id in the lock table
	asked  *request
	who    peer.Identity
	peer   process
}

// wait is the wait for the lock.
type wait struct {
	ctx     context.Context // canceled when the hold stops waiting
	quit    context.CancelCauseFunc
	decided chan struct{} // closed once the lock has been won or refused
}

// event is something that happened to a hold.
type event struct {
	what   happening
	err    error
	reason string // for stopAsked
	done   bool   // for asked: whether to record the key as done
}

// isWanted reports whether the program wants the lock or holds it, and can still learn what becomes of it.
func (h *hold) isWanted() bool {
	p := h.status().phase
	return (p == waiting || p == held || p == stopping) && !h.peer.HasClosed()
}

func (h *hold) put(e event) { h.events.Put(e) }

// options returns the options for the lock, of whatever kind.
func (h *hold) options() spindle.CommonOption {
	r, a := h.asked, h.agent
	return spindle.Options(
		spindle.WithLease(r.lease), spindle.WithID(h.holder), spindle.WithValue(r.value), spindle.WithLogger(a.warnings),
		options.Option(func(c *options.Config) {
			c.Shared = true
			c.Store, c.Requests, c.Clock = a.programs.counted(h, a.Locks.Store), &a.requests, a.clock
			c.Owner = h.who.Key
			c.Process = fmt.Sprintf("agent %p, %s", a, cmp.Or(h.who.Key, h.id)) // each program counts as a process of its own in queues
			c.Mute, c.Happened = h.mute, h.happened
			c.HoldOff = a.barred.left
			c.Look = r.lease / 20 // polls are cheap because they are shared, and the lock of a killed program is taken over sooner
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
		h.change(func(s *status) { s.ended = e.Err })
		h.put(event{what: termEnded, err: e.Err})
	}
}

// begin starts to acquire the lock, and to handle events.
func (h *hold) begin() {
	go func() {
		if h.asked.wait > 0 {
			defer time.AfterFunc(h.asked.wait, func() { h.wait.quit(errTimeout) }).Stop()
		}
		if err := h.lock.acquire(h.wait.ctx); err != nil {
			h.put(event{what: refused, err: err})
			return
		}
		h.put(event{what: won})
	}()
	go h.run()
}

// run handles events until the hold is over.
func (h *hold) run() {
	defer close(h.ended)
	reading := h.watchReading()
	defer reading.Stop()
	closed, exited := h.peer.Closed(), h.peer.Exited()
	for h.machine.phase != over {
		select {
		case <-closed:
			closed = nil
			h.handle(event{what: streamEnds})
		case <-exited:
			exited = nil
			h.handle(event{what: exits})
		case <-reading.C:
			if h.reads.stalled(h.peer.Unread(), h.asked.stall, h.agent.clock.Now()) {
				h.handle(event{what: stalls, err: errStalled})
			}
		case <-h.events.Ready():
			h.receive()
		}
	}
	h.events.Close()
	h.agent.ended(h)
	h.agent.programs.end(h)
}

func (h *hold) receive() {
	for {
		e, ok := h.events.Next()
		if !ok {
			return
		}
		h.handle(e)
	}
}

func (h *hold) handle(e event) {
	wasWaiting := h.machine.phase <= quitting
	if wasWaiting && e.what == termEnded {
		h.cause = e
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
		h.log.Info("held", "token", h.lock.token())
		key, record := h.lock.key()
		h.lines.add(line{Event: "held", Names: h.lock.names(), Token: int64(h.lock.token()), Key: key,
			Fence: h.agent.fences(leaseKeys(h.lock)), Record: h.agent.mutations(record)})
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
	case doubt:
		h.cause = e
		time.AfterFunc(longestDoubt, func() { h.put(event{what: doubted}) })
	case quit:
		why := errUnwanted
		if e.what == stopAsked {
			why = fmt.Errorf("%w: %s", errAsked, e.reason)
		}
		h.wait.quit(why)
	case mute:
		close(h.mute)
	case release:
		h.lift()
		go h.release(e.done)
	case discard:
		go func() { _ = h.giveBack(false) }() // the error only says that the lock is no longer held
	case end:
		h.lines.end()
	}
}

// longestDoubt is how long the agent waits for the second sign that a program has died. The two signs are the end of
// its process and the end of its stream. After a kill, both come within this time, unless the process has to free
// gigabytes of memory or writes a core dump.
const longestDoubt = 100 * time.Millisecond

var (
	errUnwanted = errors.New("the program no longer waits for the lock")
	errAsked    = errors.New("this request was asked to stop waiting")
	errTimeout  = errors.New("timed out waiting for the lock")
	errStalled  = errors.New("the program does not read its lines")
	errClosed   = errors.New("the program closed the connection, but may still be running")
	errExited   = errors.New("the program has ended, but another process still has its connection open")
)

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
	reason := map[error]string{errStalled: "stalled", errClosed: "closed", errExited: "exited"}[why]
	switch {
	case errors.Is(why, spindle.ErrSuperseded):
		reason = "superseded"
	case errors.Is(why, spindle.ErrExpired):
		reason = "expired"
	}
	h.change(func(s *status) { s.lost = why.Error() })
	if e.what != termEnded { // the lock has already logged its own loss
		h.log.Warn("lost", "reason", why)
	}
	h.lines.add(line{Event: "lost", Reason: reason, Detail: why.Error()})
}

func (h *hold) sayRefused(err error) {
	h.change(func(s *status) { s.refusal = err })
	said := line{Event: "refused", Detail: err.Error()}
	switch {
	case errors.Is(err, errDone):
		said = line{Event: "done"}
	case errors.Is(err, errBusy):
		said.Reason = "busy"
	case errors.Is(err, lock.ErrPassed):
		said.Reason = "passed"
	case errors.Is(context.Cause(h.wait.ctx), errTimeout):
		said.Event = "timeout"
	case errors.Is(context.Cause(h.wait.ctx), errAsked):
		said.Reason, said.Detail = "stopping", context.Cause(h.wait.ctx).Error()
	case errors.Is(context.Cause(h.wait.ctx), errUnwanted):
		said.Reason = "stopping"
	}
	h.log.Debug("not acquired", "reason", err)
	h.lines.add(said)
}

// release releases the lock, and then notifies the machine.
func (h *hold) release(done bool) {
	err := h.giveBack(done)
	h.change(func(s *status) {
		if err == nil && errors.Is(s.ended, spindle.ErrSuperseded) {
			err = s.ended // an election that finds this at its release has nothing left to release
		}
		s.done, s.failure = done, err
	})
	if err != nil {
		h.log.Warn("not released", "err", err)
	} else {
		h.log.Info("released")
	}
	h.put(event{what: released})
}

// giveBack releases the lock. It gives up after one lease, because the lock has expired by then.
func (h *hold) giveBack(done bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), h.asked.lease)
	defer cancel()
	return h.lock.release(ctx, done)
}

// stop asks the program to release the lock. In an election, it first announces to the followers that the lock will be
// released.
func (h *hold) stop(reason string) {
	h.change(func(s *status) { s.stops = reason })
	if h.status().phase != held {
		h.ask()
		return
	}
	go h.lock.stepDown(context.Background(), h.ask)
}

// ask asks the program to release the lock. Unless stop has recorded a different reason, the lock is handed over to
// another candidate.
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
		left := h.lock.left()
		until := now.until(left)
		l.Until, l.Left = &until, max(left.Milliseconds(), 0)
		h.promise(promise{made, left})
	}
}

// promise records p, unless an earlier promise lasts longer or the program can no longer act.
func (h *hold) promise(p promise) {
	now, names := h.agent.clock.Now(), h.lock.names()
	h.change(func(s *status) {
		if !s.lifted && p.over(now) > s.promised.over(now) {
			s.promised = p
			h.agent.barred.until(p, h.id, names)
		}
	})
}

// lift ends the promises to the program, because it can no longer act.
func (h *hold) lift() {
	names := h.lock.names()
	h.change(func(s *status) {
		s.lifted = true
		h.agent.barred.lift(h.id, names)
	})
}

// sayLeader tells a program that is waiting in an election who leads.
func (h *hold) sayLeader(l *leaderJSON) { h.lines.add(line{Event: "leader", Leader: l}) }
