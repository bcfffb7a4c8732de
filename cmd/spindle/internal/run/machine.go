package run

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// The exit codes that only exec has, in addition to the program's own.
const (
	NotInTime = 75 // EX_TEMPFAIL
	Lost      = 76
)

// A phase is a stage of one turn.
type phase int

const (
	waiting    phase = iota // waiting for the lock
	checking                // holding the lock, and waiting for the result of the deed check
	starting                // starting the program
	running                 // the program is running; or the service is active, or being activated
	announcing              // like running, until the other candidates know that the lock will be released
	stopping                // the program was signaled to end, or the service is being deactivated
	releasing               // releasing the lock: the program has exited, or was not started
	ended
)

// machine is the state machine of exec and guard. It follows these rules:
//
//   - If the lock is acquired after a signal to end, or after the wait has ended, nothing is started under it.
//   - Once exec has signaled the program to end, the program must end, even if the reason for the signal disappears.
//   - The lock is released only after the program's whole process group has exited, or once the service is known to be
//     inactive on every machine, because the next holder begins immediately.
//
// While the program is being started or the lock is being released, the machine receives no event except the result.
type machine struct {
	once     bool // once the lock is held, exec asks again whether the program has to run
	handover bool // a stop is announced first
	restart  bool // the command competes again after a turn has ended
	service  bool // a service runs under the lock: it may be active at first, and deactivations can fail
	words

	phase  phase
	signal os.Signal     // the signal that ends the command, or nil
	last   terminal.Exit // how the last turn ended
	turn   turn
}

// words contains what appears in messages about the end of exec.
type words struct {
	name, program, key string
	patience           time.Duration // how long to wait for the lock
}

// turn is the history since the command last began to compete for the lock.
type turn struct {
	verdict        *event    // the event that kept the program from running: unable, done or notStarted
	tooLate        bool      // the lock was not acquired in time
	failed         error     // why the last poll failed, if it did
	unsettled      bool      // the service may still be active on the last holder's machine
	active         bool      // the program was started, or the service has been activated
	handoverSignal os.Signal // the signal that the program gets once the candidates know of the announcement
	yielding
	unfit  error  // why the program or service had to end although the lock was held, or nil; errLate if the lock was nearly lost
	exited *event // the exit of a program that was started
	lost   error  // why the lock is not held, or nil
	left   error  // why the lock could not be released and will expire, or nil
}

// yielding describes a turn that ends because another process asks for the lock.
type yielding struct {
	by      table.Request // the request to hand over the lock, or ""
	yielded bool          // the program was signaled to end because of the request
}

var (
	errLate      = errors.New("no heartbeat was acknowledged in time")
	errNoTerm    = errors.New("the lock was not held yet")
	errUnsettled = errors.New("the service may still be active on the last holder's machine")
)

// on handles an event, and returns the actions to take, in this order.
func (m *machine) on(e event) []action {
	switch m.phase {
	case waiting:
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
		if m.service {
			m.turn.lost = errNoTerm
			return m.stop(action{do: kill})
		}
		return []action{{do: compete}}
	case ending:
		if m.signal == nil {
			m.signal = e.signal
			return []action{{do: withdraw}}
		}
	case elected, electedDead:
		m.turn.tooLate, m.turn.unsettled = e.late, m.service && e.what == electedDead
		switch {
		case m.signal != nil || e.late:
			return m.giveUp()
		case m.once || m.turn.unsettled:
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

func (m *machine) prepare(e event) []action {
	switch e.what {
	case due:
		m.phase, m.turn.unsettled = starting, false
		return []action{{do: start}}
	case ending:
		m.signal = e.signal
		return m.giveUp()
	case unable, done, notStarted:
		m.turn.verdict = &e
		return m.giveUp()
	case unfit:
		m.turn.unfit = e.err
		return m.giveUp()
	case lost:
		return m.abandon(e.err)
	case started:
		m.phase, m.turn.active = running, !m.service
		if m.handover {
			return []action{{do: watchRequests}}
		}
	}
	return nil
}

func (m *machine) work(e event) []action {
	switch e.what {
	case activated:
		m.turn.active = true
	case signaled:
		return []action{{do: pass, signal: e.signal}}
	case ending:
		m.signal = e.signal
		switch {
		case m.handover && m.phase == running && m.turn.active:
			return m.part(e.signal)
		case m.service && m.phase == announcing:
			return nil // the service is deactivated once the candidates know
		}
		return m.stop(action{do: pass, signal: e.signal}) // without an announcement, or after a second signal
	case requested:
		if m.phase == running {
			m.turn.by = e.by
			return m.part(terminationSignal)
		}
	case announced:
		if m.phase == announcing {
			m.turn.yielded = m.turn.by != ""
			return m.stop(action{do: pass, signal: m.turn.handoverSignal})
		}
	case late:
		m.turn.unfit = cmp.Or(m.turn.unfit, errLate)
		return m.stop(action{do: pass, signal: terminationSignal})
	case overdue:
		m.turn.unfit = cmp.Or(m.turn.unfit, errLate)
		return m.stop(action{do: kill})
	case overstayed:
		return m.stop(action{do: kill})
	case unfit:
		m.turn.unfit = e.err
		return m.stop(action{do: limit, after: e})
	case lost:
		m.turn.lost = e.err
		return m.stop(action{do: limit, after: e})
	case exited:
		m.turn.exited = &e
		if m.turn.lost != nil {
			return m.abandon(m.turn.lost)
		}
		return m.giveUp()
	case notExited:
		return m.persist(e.err)
	}
	return nil
}

// persist tries again to deactivate the service. After the first failed deactivation, it leaves the lock to expire.
func (m *machine) persist(why error) []action {
	if m.turn.lost != nil {
		return []action{{do: kill}}
	}
	m.turn.lost = why
	return []action{{do: abandon}, {do: kill}}
}

// part announces the end of the term. Once the other candidates know of the announcement, the program gets the signal,
// or the service is deactivated.
func (m *machine) part(s os.Signal) []action {
	m.phase, m.turn.handoverSignal = announcing, s
	return []action{{do: announce, signal: s}}
}

// stop ends what runs. It does not interrupt a deactivation in progress.
func (m *machine) stop(how action) []action {
	if m.service && m.phase == stopping {
		return nil
	}
	m.phase = stopping
	return []action{how}
}

// giveUp releases the lock, or leaves it to expire if the service may still be active on the last holder's machine. By
// then, the program or service on this machine must have ended, unless it was never started.
func (m *machine) giveUp() []action {
	if m.turn.unsettled {
		return m.abandon(errUnsettled)
	}
	m.phase = releasing
	switch {
	case m.succeeded():
		return []action{{do: recordDone}}
	case m.once && (m.turn.verdict == nil || m.turn.verdict.what != done):
		return []action{{do: releaseUndone}}
	}
	return []action{{do: release}}
}

// abandon ends a term that can't end with a release: its lock was lost, or must expire.
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
	return m.once && m.turn.exited != nil && m.turn.exited.code == 0 && m.turn.unfit == nil
}

// conclude ends the turn. Afterwards, the command either ends or competes again. Before it competes again, exec leaves
// the lock to others for a while, unless it has just handed over the lock. Guard does so only if the service is unfit.
func (m *machine) conclude() []action {
	m.last = m.outcome()
	if !m.again() {
		m.phase = ended
		return nil
	}
	next := action{do: competeLater}
	if m.handedOver() || m.service && m.turn.unfit == nil {
		next.do = competeAtOnce
	}
	m.phase, m.turn = waiting, turn{}
	return []action{next}
}

// outcome returns how a turn has ended. Exec exits with it, unless it competes again.
func (m *machine) outcome() terminal.Exit {
	t := &m.turn
	failed := func(code int, format string, args ...any) terminal.Exit {
		return terminal.Exit{Code: code, Err: fmt.Errorf("%s"+format, append([]any{m.name}, args...)...)}
	}
	switch {
	case t.verdict != nil:
		return t.verdict.end
	case m.signal != nil && t.exited == nil:
		return terminal.Exit{Code: signalCode(m.signal)}
	case t.tooLate && t.failed == nil:
		return failed(NotInTime, " was not acquired within %v", m.patience)
	case t.tooLate && errors.Is(t.failed, table.ErrNewer): // which counts as held
		return failed(NotInTime, " was not acquired within %v because it is held: %w", m.patience, t.failed)
	case t.tooLate: // it is not known whether the lock is held
		return failed(terminal.Failed, " was not acquired within %v: %w", m.patience, t.failed)
	case m.succeeded() && (t.lost != nil || t.left != nil):
		return failed(terminal.Failed, ": %s SUCCEEDED, BUT %s COULD NOT BE RECORDED AS DONE, so the next exec will run it again: %w", m.program, m.key, cmp.Or(t.lost, t.left))
	case t.lost != nil:
		return failed(Lost, " was lost: %w", t.lost)
	case t.unfit == errLate:
		return failed(Lost, " was lost because %w, so exec ended %s", errLate, m.program)
	case t.unfit != nil:
		return failed(Lost, " was given up: %w", t.unfit)
	}
	return terminal.Exit{Code: t.exited.code}
}

// again reports whether the command competes again.
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

// handedOver reports whether what ran was ended because of a request, and the lock was not lost before its release.
func (m *machine) handedOver() bool { return m.turn.yielded && m.turn.lost == nil }

// announcesEnd reports whether exec has received a signal to end, but has not passed it on to the program yet, because
// the other candidates must first know that the lock will be released. If exec were stopped now, it would not pass the
// signal on until it was continued.
func (m *machine) announcesEnd() bool { return m.phase == announcing && m.signal != nil }
