package run

import (
	"errors"
	"fmt"
	"os"

	"github.com/spindle-lock/spindle/internal/table"
)

// The exit codes that exec itself uses.
const (
	Failed    = 1
	NotInTime = 75 // EX_TEMPFAIL
	Lost      = 76
)

// An End is the way exec ends: an exit code and, unless it is nil, an error to show to the user.
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

// A phase is a stage of one turn.
type phase int

const (
	waiting    phase = iota // waiting for the lock
	leaving                 // the wait is over, but a claim in progress may still succeed
	checking                // holding the lock, asking whether the program still has to run
	starting                // starting the program
	running                 // the program is running
	announcing              // the program continues until the other candidates know that the lock will be released
	stopping                // the program was signaled to end
	releasing               // releasing the lock: the program has exited, or was not started
	ended
)

// An outcome is the result of one competition for the lock, and of the program that ran under it.
type outcome struct {
	why result
	End       // if why is told
	err error // for all other results
}

// A result is the kind of an outcome.
type result int

const (
	told        result = iota // exec ends with End
	tooLate                   // the lock was not acquired in time; err is why the last poll failed
	wasLost                   // the lock was lost before the program exited; err is the reason
	hadToEnd                  // the program had to end because the lock was nearly lost (err is nil) or the program was unfit (err is the reason)
	notRecorded               // the program succeeded, but this may not have been recorded; err is the reason
)

// code returns exec's exit code.
func (o outcome) code() int {
	switch o.why {
	case told:
		return o.Code
	case tooLate:
		if o.err == nil || errors.Is(o.err, table.ErrNewer) { // which counts as held
			return NotInTime
		}
		return Failed // it is not known whether the lock is held
	case notRecorded:
		return Failed
	}
	return Lost
}

// machine is the state machine of exec. It follows three rules:
//
//   - If exec acquires the lock after its wait has ended, it does not start the program.
//   - Once exec has signaled the program to end, the program must end, even if the reason for the signal disappears.
//   - Exec releases the lock only after the program's whole process group has exited.
//
// While the program is being started or the lock is being released, the machine receives no event except the result.
type machine struct {
	once     bool // once the lock is held, exec asks again whether the program has to run
	handover bool // exec announces a stop first
	restart  bool // exec competes again when the program has exited

	phase  phase
	signal os.Signal // the signal that ends exec, or nil
	last   outcome   // the outcome of the last turn
	turn   turn
}

// turn is the history since exec last began to compete for the lock.
type turn struct {
	verdict        *event        // the event that kept the program from running: unable, done or notStarted
	tooLate        bool          // the lock was not acquired in time
	failed         error         // why the last poll failed, if it did
	handoverSignal os.Signal     // the signal that the program gets once the candidates know the announcement
	by             table.Request // the request to hand over the lock, or ""
	yielded        bool          // the program was signaled to end because of the request
	late           bool          // the program was signaled to end because the lock was nearly lost
	unfit          error         // why the program was signaled to end although the lock was held, or nil
	exited         bool          // the program was started and has exited
	code           int
	lost           error // why the lock was lost, or nil
	left           error // why the lock could not be released and will expire, or nil
}

// on handles an event, and returns the actions to take, in this order.
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
		if m.phase == leaving { // the lock came too late
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
		return m.stop(pass, e.signal) // without an announcement, or after a second signal
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

// part announces the end of the term. The program gets the signal once the other candidates know of the announcement.
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

// giveUp releases the lock. The program must have exited with its whole group, or not have been started.
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

// succeeded reports whether the program has done the work.
func (m *machine) succeeded() bool {
	return m.once && m.turn.exited && m.turn.code == 0 && !m.turn.late && m.turn.unfit == nil
}

// conclude ends the turn. Afterwards, exec either ends or competes again.
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

// handedOver reports whether exec ended the program because of a request, and still held the lock afterwards.
func (m *machine) handedOver() bool { return m.turn.yielded && m.turn.lost == nil }
