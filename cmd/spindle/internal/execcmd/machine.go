// Package execcmd runs a program while a lock is held.
//
//   - machine.go: the state, and what must be done at each event
//   - exec.go: doing it, over time
//   - acquire.go: the wait for the lock; program.go: the program; release.go: the lock's release
//   - jobcontrol.go: the terminal, and programs that are stopped
//   - deadlines.go: when the program must end, to be gone before the lock's local deadline
//   - signals_*.go: which signals exec knows
package execcmd

import (
	"errors"
	"fmt"
	"os"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// The exit codes of exec itself.
const (
	Failed    = 1
	NotInTime = 75 // EX_TEMPFAIL
	Lost      = 76
)

// An End is how exec ends: with an exit code, and with an error for people unless that is nil.
type End struct {
	Code int
	Err  error
}

func (e End) String() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// A phase is how far exec has come.
type phase int

const (
	waiting    phase = iota // for the lock
	leaving                 // the wait is over, but a claim that is under way may still succeed
	checking                // under the lock: is the program still to be run?
	starting                // the program
	running                 // the program
	announcing              // the program works on until the other candidates know that the lock will be released
	stopping                // the program was signaled to end
	releasing               // the lock: the program has ended, or was not started
	ended
)

// A happening is the kind of an event.
type happening int

const (
	nothing     happening = iota
	begun                 // exec
	elected               // the lock is held
	withdrawn             // exec competes no more, and does not hold the lock; err: why the last look failed
	waitOver              // the lock was not held for as long as exec may wait for it
	unable                // a look at the lock, or the program's start, says that exec must end: end
	done                  // what is to be done once was done already: end
	due                   // it is still to be done
	started               // the program
	notStarted            // the program, which another attempt may start: end
	ending                // exec got a signal to end: signal
	signaled              // exec got another signal: signal
	requested             // the lock is to be handed over: by
	announced             // the other candidates know that the lock will be released
	late                  // the program must be signaled to end, to be gone before the lock's deadline
	overdue               // the program must be killed
	unfit                 // the program must end though the lock is held: err
	overstayed            // the program was signaled to end, and had all the time that exec gives it
	exited                // the program ended, and its group is gone: code
	jeopardy              // a heartbeat has failed: err
	safe                  // a heartbeat was acknowledged again
	lost                  // the lock is not held any more: err
	released              // the lock
	notReleased           // the lock: err
)

// An event is something that happened.
type event struct {
	what   happening
	term   *elect.Term
	end    End
	signal os.Signal
	by     table.Request
	code   int
	err    error
}

// A deed is the kind of an action.
type deed int

const (
	compete       deed = iota // for the lock
	competeAtOnce             // again: the lock was handed over
	competeLater              // again, once others have had their turn
	withdraw                  // stop competing
	keep                      // the lock, with heartbeats
	check                     // whether the program is still to be run
	start                     // the program
	watchRequests             // to hand the lock over
	announce                  // that the lock will be released
	pass                      // signal to the program
	limit                     // the program to its grace; after: why
	kill                      // the program
	release                   // the lock
	recordDone                // in the commit that releases the lock
	releaseUndone             // release the lock, and say that what is to be done once is not done
	abandon                   // the lock, which is lost
)

// An action is something to be done.
type action struct {
	do     deed
	signal os.Signal
	after  event
}

// An outcome is what came of one competition, and of the program under its lock.
type outcome struct {
	why result
	End       // of told
	err error // of the others
}

// A result is the kind of an outcome.
type result int

const (
	told        result = iota // End
	tooLate                   // the lock was not acquired in time; err: why the last look failed
	wasLost                   // the lock, before the program had ended; err: why
	hadToEnd                  // the program, as the lock was nearly lost, or as it was unfit; err: why it was, or nil
	notRecorded               // the program succeeded, and that is not known to be recorded; err: why
)

// code is exec's exit code.
func (o outcome) code() int {
	switch o.why {
	case told:
		return o.Code
	case tooLate:
		if o.err == nil || errors.Is(o.err, table.ErrNewer) { // which counts as held
			return NotInTime
		}
		return Failed // who holds the lock is not known
	case notRecorded:
		return Failed
	}
	return Lost
}

// machine is the state of exec. All of it follows from three rules: the program starts only under a lock that was acquired
// before the wait was over; once the program was signaled to end, there is no way back; and the lock is released only when
// the program's group is gone.
//
// While the program is being started, or the lock released, the only event is the result.
type machine struct {
	once     bool // under the lock, exec asks again whether the program is to be run
	handover bool // an end is announced first
	restart  bool // exec competes again when the program has ended

	phase  phase
	signal os.Signal // that ends exec, or nil
	last   outcome   // once ended, or competing again
	turn   turn
}

// turn is what happened since exec last began to compete for the lock.
type turn struct {
	verdict        *event        // why the program did not run: unable, done or notStarted
	tooLate        bool          // the lock was not acquired in time
	failed         error         // why the last look before that failed
	handoverSignal os.Signal     // that the program gets once the announcement is known
	by             table.Request // to hand the lock over, or ""
	yielded        bool          // the program was signaled to end because of that
	late           bool          // the program was signaled to end because the lock was nearly lost
	unfit          error         // the program was signaled to end because of that
	exited         bool          // the program was started, and has ended
	code           int
	lost           error // why
	left           error // why the lock could not be released, and is left to expire
}

// on returns what to do, in this order.
func (m *machine) on(e event) []action {
	switch m.phase {
	case waiting, leaving:
		return m.wait(e)
	case checking, starting:
		return m.prepare(e)
	case running, announcing, stopping:
		return m.work(e)
	case releasing:
		return m.settle(e)
	}
	return nil
}

func (m *machine) wait(e event) []action {
	switch e.what {
	case begun:
		return []action{{do: compete}}
	case ending:
		if m.signal == nil {
			m.signal = e.signal
		}
		return m.leave()
	case waitOver:
		m.turn.tooLate = true
		return m.leave()
	case elected:
		if m.phase == leaving { // it came too late
			return m.giveUp()
		}
		if m.once {
			m.phase = checking
			return []action{{do: keep}, {do: check}}
		}
		m.phase = starting
		return []action{{do: keep}, {do: start}}
	case unable, done:
		m.turn.verdict = &e
		return m.conclude()
	case withdrawn:
		m.turn.tooLate, m.turn.failed = true, e.err
		return m.conclude()
	}
	return nil
}

func (m *machine) leave() []action {
	if m.phase == leaving {
		return nil
	}
	m.phase = leaving
	return []action{{do: withdraw}}
}

func (m *machine) prepare(e event) []action {
	switch e.what {
	case due:
		m.phase = starting
		return []action{{do: start}}
	case ending:
		m.signal = e.signal
		return m.giveUp()
	case unable, done, notStarted:
		m.turn.verdict = &e
		return m.giveUp()
	case lost:
		return m.abandon(e.err)
	case started:
		m.phase = running
		if m.handover {
			return []action{{do: watchRequests}}
		}
	}
	return nil
}

func (m *machine) work(e event) []action {
	switch e.what {
	case signaled:
		return []action{{do: pass, signal: e.signal}}
	case ending:
		m.signal = e.signal
		if m.handover && m.phase == running {
			return m.part(e.signal)
		}
		return m.stop(pass, e.signal) // a second one means at once
	case requested:
		if m.phase == running {
			m.turn.by = e.by
			return m.part(terminationSignal)
		}
	case announced:
		if m.phase == announcing {
			m.turn.yielded = m.turn.by != ""
			return m.stop(pass, m.turn.handoverSignal)
		}
	case late:
		m.turn.late = true
		return m.stop(pass, terminationSignal)
	case overdue:
		m.turn.late = true
		return m.stop(kill, nil)
	case unfit:
		m.turn.unfit = e.err
		return m.limit(e)
	case overstayed:
		return m.stop(kill, nil)
	case lost:
		m.turn.lost = e.err
		return m.limit(e)
	case exited:
		m.turn.exited, m.turn.code = true, e.code
		if m.turn.lost != nil {
			return m.abandon(m.turn.lost)
		}
		return m.giveUp()
	}
	return nil
}

// part announces the end of the term: the program gets the signal once that is known.
func (m *machine) part(s os.Signal) []action {
	m.phase, m.turn.handoverSignal = announcing, s
	return []action{{do: announce, signal: s}}
}

func (m *machine) stop(do deed, s os.Signal) []action {
	m.phase = stopping
	return []action{{do: do, signal: s}}
}

func (m *machine) limit(e event) []action {
	m.phase = stopping
	return []action{{do: limit, after: e}}
}

// giveUp releases the lock. There is no program, or nothing is left of it.
func (m *machine) giveUp() []action {
	m.phase = releasing
	switch {
	case m.succeeded():
		return []action{{do: recordDone}}
	case m.once && (m.turn.verdict == nil || m.turn.verdict.what != done):
		return []action{{do: releaseUndone}}
	}
	return []action{{do: release}}
}

// abandon ends a term whose lock was lost before it could be released.
func (m *machine) abandon(why error) []action {
	m.turn.lost = why
	return append([]action{{do: abandon}}, m.conclude()...)
}

// settle ends the term with the result of the release.
func (m *machine) settle(e event) []action {
	switch e.what {
	case released:
	case notReleased:
		m.turn.left = e.err
	case lost:
		m.turn.lost = e.err
	default:
		return nil
	}
	return m.conclude()
}

// succeeded reports whether the program has done what is to be done once.
func (m *machine) succeeded() bool {
	return m.once && m.turn.exited && m.turn.code == 0 && !m.turn.late && m.turn.unfit == nil
}

// conclude ends exec, or lets it compete again.
func (m *machine) conclude() []action {
	m.last = m.outcome()
	if !m.again() {
		m.phase = ended
		return nil
	}
	next := action{do: competeLater}
	if m.handedOver() {
		next.do = competeAtOnce
	}
	m.phase, m.turn = waiting, turn{}
	return []action{next}
}

func (m *machine) outcome() outcome {
	t := &m.turn
	switch {
	case t.verdict != nil:
		return outcome{why: told, End: t.verdict.end}
	case m.signal != nil && !t.exited:
		return outcome{why: told, End: End{Code: signalCode(m.signal)}}
	case t.tooLate:
		return outcome{why: tooLate, err: t.failed}
	case t.lost != nil && m.succeeded():
		return outcome{why: notRecorded, err: t.lost}
	case t.lost != nil:
		return outcome{why: wasLost, err: t.lost}
	case t.left != nil && m.succeeded():
		return outcome{why: notRecorded, err: t.left}
	case t.late, t.unfit != nil:
		return outcome{why: hadToEnd, err: t.unfit}
	}
	return outcome{why: told, End: End{Code: t.code}}
}

// again reports whether exec competes again.
func (m *machine) again() bool {
	t := &m.turn
	switch {
	case m.signal != nil || t.tooLate:
		return false
	case t.verdict != nil:
		return m.restart && t.verdict.what == notStarted
	}
	return m.restart || m.handedOver()
}

// handedOver reports whether a request made exec end the program. A lock that was lost meanwhile is not handed over.
func (m *machine) handedOver() bool { return m.turn.yielded && m.turn.lost == nil }
