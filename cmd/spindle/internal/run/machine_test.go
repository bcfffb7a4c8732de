//go:build unix

package run

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/internal/table"
)

var errSuperseded = errors.New("superseded")

// The events of the races, with the exit codes of the program in them.
var (
	terminated   = event{what: ending, signal: syscall.SIGTERM}
	interruption = event{what: ending, signal: syscall.SIGINT}
	timeout      = event{what: withdrawn}
	won          = event{what: elected}
	belated      = event{what: elected, late: true}
	loss         = event{what: lost, err: errSuperseded}
	request      = event{what: requested, by: table.ByOperator}
	known        = event{what: announced}
	pressed      = event{what: late}
	beyond       = event{what: overdue}
	weak         = event{what: unfit, err: errors.New("it was stopped")}
	tooSlow      = event{what: overstayed}
	success      = event{what: exited}
	failure      = event{what: exited, code: 3}
	already      = event{what: done, end: exit.Error{Code: 77}}
	garbled      = event{what: unable, end: exit.Error{Code: exit.Failed, Err: errors.New("garbled")}}
	todo         = event{what: due}
)

// drive is a machine of exec or guard, and what answers to its actions at once: the program starts, and the lock is released.
type drive struct {
	machine
	loses   bool // a release finds that the lock is lost
	deeds   []deed
	passed  []os.Signal
	ran     bool
	again   int // how often it competed again
	program bool
}

func (d *drive) on(events ...event) {
	for _, e := range events {
		for _, a := range d.machine.on(e) {
			d.deeds = append(d.deeds, a.do)
			switch a.do {
			case start:
				d.ran, d.program = true, true
				d.on(event{what: started})
			case pass:
				d.passed = append(d.passed, a.signal)
			case release, releaseUndone, recordDone:
				if d.loses {
					d.on(loss)
				} else {
					d.on(event{what: released})
				}
			case competeAtOnce, competeLater:
				d.again++
			}
		}
		d.program = d.program && e.what != exited
	}
}

// finish lets everything come to its end: the program ends by the signal that it got last, or by itself.
func (d *drive) finish() {
	for range 10 {
		switch d.phase {
		case waiting:
			if d.signal != nil {
				d.on(event{what: withdrawn})
			}
		case checking:
			d.on(todo)
		case running:
			d.on(success)
		case announcing:
			d.on(known)
		case stopping:
			code := signalCode(syscall.SIGKILL)
			if n := len(d.passed); n > 0 {
				code = signalCode(d.passed[n-1])
			}
			d.on(event{what: exited, code: code})
		}
	}
}

func (d *drive) did(what deed) bool { return slices.Contains(d.deeds, what) }

const (
	byTerm = 128 + int(syscall.SIGTERM)
	byInt  = 128 + int(syscall.SIGINT)
)

// A way is what a race came to.
type way struct {
	code  int
	ran   bool // the program was started
	again int  // how often exec competed again
}

// Of two events at the same instant either may come first.
func TestOfTwoEventsAtTheSameInstantEitherMayComeFirst(t *testing.T) {
	for _, r := range []struct {
		name   string
		m      machine
		before []event
		a, b   event
		ab, ba way
	}{
		{name: "the wait's end, a signal", a: timeout, b: terminated,
			ab: way{code: NotInTime}, ba: way{code: byTerm}},
		{name: "a claim after the wait's end, a signal", a: belated, b: terminated,
			ab: way{code: NotInTime}, ba: way{code: byTerm}},
		{name: "a signal, a claim", a: terminated, b: won,
			ab: way{code: byTerm}, ba: way{code: byTerm, ran: true}},
		{name: "a signal, a claim of what is to be done once", m: machine{once: true}, a: terminated, b: won,
			ab: way{code: byTerm}, ba: way{code: byTerm}},
		{name: "two signals while waiting", a: terminated, b: interruption,
			ab: way{code: byTerm}, ba: way{code: byInt}},
		{name: "a signal, done already", m: machine{once: true}, a: terminated, b: already,
			ab: way{code: 77}, ba: way{code: 77}},
		{name: "a claim, a signal when it is known that it was done", m: machine{once: true}, before: []event{won}, a: terminated, b: already,
			ab: way{code: byTerm}, ba: way{code: 77}},
		{name: "a claim, a signal when it is known that it is due", m: machine{once: true}, before: []event{won}, a: terminated, b: todo,
			ab: way{code: byTerm}, ba: way{code: byTerm, ran: true}},
		{name: "a claim, a loss when it is known that it is due", m: machine{once: true}, before: []event{won}, a: loss, b: todo,
			ab: way{code: Lost}, ba: way{code: Lost, ran: true}},
		{name: "a claim, a loss when it is known that it was done", m: machine{once: true}, before: []event{won}, a: loss, b: already,
			ab: way{code: Lost}, ba: way{code: 77}},
		{name: "a claim, a loss and a signal", m: machine{once: true}, before: []event{won}, a: loss, b: terminated,
			ab: way{code: Lost}, ba: way{code: byTerm}},
		{name: "a claim, a record that can't be read and a signal", m: machine{once: true}, before: []event{won}, a: garbled, b: terminated,
			ab: way{code: exit.Failed}, ba: way{code: byTerm}},

		{name: "a loss, the program's end", before: []event{won}, a: loss, b: success,
			ab: way{code: Lost, ran: true}, ba: way{code: 0, ran: true}},
		{name: "a loss, the end of what is to be done once", m: machine{once: true}, before: []event{won, todo}, a: loss, b: success,
			ab: way{code: exit.Failed, ran: true}, ba: way{code: 0, ran: true}},
		{name: "a loss, the failure of what is to be done once", m: machine{once: true}, before: []event{won, todo}, a: loss, b: failure,
			ab: way{code: Lost, ran: true}, ba: way{code: 3, ran: true}},
		{name: "a loss, the program's end, with restart", m: machine{restart: true}, before: []event{won}, a: loss, b: success,
			ab: way{code: Lost, ran: true, again: 1}, ba: way{code: 0, ran: true, again: 1}},
		{name: "a loss, a signal", before: []event{won}, a: loss, b: terminated,
			ab: way{code: Lost, ran: true}, ba: way{code: Lost, ran: true}},
		{name: "a loss, a signal, with restart", m: machine{restart: true}, before: []event{won}, a: loss, b: terminated,
			ab: way{code: Lost, ran: true}, ba: way{code: Lost, ran: true}},
		{name: "no time is left, the program's end", before: []event{won}, a: pressed, b: success,
			ab: way{code: Lost, ran: true}, ba: way{code: 0, ran: true}},
		{name: "the program's last instant, its end", m: machine{once: true}, before: []event{won, todo}, a: beyond, b: success,
			ab: way{code: Lost, ran: true}, ba: way{code: 0, ran: true}},
		{name: "an unfit program, its end", before: []event{won}, a: weak, b: success,
			ab: way{code: Lost, ran: true}, ba: way{code: 0, ran: true}},
		{name: "an unfit program, a loss", before: []event{won}, a: weak, b: loss,
			ab: way{code: Lost, ran: true}, ba: way{code: Lost, ran: true}},
		{name: "an unfit program, a signal", before: []event{won}, a: weak, b: terminated,
			ab: way{code: Lost, ran: true}, ba: way{code: Lost, ran: true}},
		{name: "an unfit program, a request", m: machine{handover: true}, before: []event{won}, a: weak, b: request,
			ab: way{code: Lost, ran: true}, ba: way{code: Lost, ran: true}},
		{name: "no time is left, a loss", before: []event{won}, a: pressed, b: loss,
			ab: way{code: Lost, ran: true}, ba: way{code: Lost, ran: true}},

		{name: "a signal, the program's end", before: []event{won}, a: terminated, b: failure,
			ab: way{code: 3, ran: true}, ba: way{code: 3, ran: true}},
		{name: "a signal, the program's end, with restart", m: machine{restart: true}, before: []event{won}, a: terminated, b: failure,
			ab: way{code: 3, ran: true}, ba: way{code: byTerm, ran: true, again: 1}},
		{name: "two signals", before: []event{won}, a: terminated, b: interruption,
			ab: way{code: byInt, ran: true}, ba: way{code: byTerm, ran: true}},

		{name: "a request, a loss", m: machine{handover: true}, before: []event{won}, a: request, b: loss,
			ab: way{code: Lost, ran: true}, ba: way{code: Lost, ran: true}},
		{name: "a handover that is known, a loss", m: machine{handover: true}, before: []event{won, request}, a: known, b: loss,
			ab: way{code: Lost, ran: true}, ba: way{code: Lost, ran: true}},
		{name: "a handover that is known, a loss, with restart", m: machine{handover: true, restart: true}, before: []event{won, request}, a: known, b: loss,
			ab: way{code: Lost, ran: true, again: 1}, ba: way{code: Lost, ran: true, again: 1}},
		{name: "a handover that is known, a signal", m: machine{handover: true}, before: []event{won, request}, a: known, b: interruption,
			ab: way{code: byInt, ran: true}, ba: way{code: byInt, ran: true}},
		{name: "a handover that is known, the program's end", m: machine{handover: true}, before: []event{won, request}, a: known, b: failure,
			ab: way{code: 3, ran: true, again: 1}, ba: way{code: 3, ran: true}},
		{name: "a handover that is known, no time is left", m: machine{handover: true}, before: []event{won, request}, a: known, b: pressed,
			ab: way{code: Lost, ran: true, again: 1}, ba: way{code: Lost, ran: true}},
		{name: "a request, a signal", m: machine{handover: true}, before: []event{won}, a: request, b: interruption,
			ab: way{code: byInt, ran: true}, ba: way{code: byInt, ran: true}},
		{name: "a request, the program's end", m: machine{handover: true}, before: []event{won}, a: request, b: failure,
			ab: way{code: 3, ran: true}, ba: way{code: 3, ran: true}},
		{name: "a signal that is known, a second one", m: machine{handover: true}, before: []event{won, terminated}, a: known, b: interruption,
			ab: way{code: byInt, ran: true}, ba: way{code: byInt, ran: true}},
		{name: "a signal that is known, a loss", m: machine{handover: true}, before: []event{won, terminated}, a: known, b: loss,
			ab: way{code: Lost, ran: true}, ba: way{code: Lost, ran: true}},
	} {
		for want, order := range map[*way][]event{&r.ab: {r.a, r.b}, &r.ba: {r.b, r.a}} {
			d := &drive{machine: r.m}
			d.on(event{what: begun})
			d.on(r.before...)
			d.on(order...)
			d.finish()
			assert.Equal(t, *want, way{d.last.Code, d.ran, d.again}, "%s: %v first", r.name, order[0].what)
			assert.False(t, d.program, "%s: the program is left", r.name)
			if d.did(keep) || slices.Contains(order, won) {
				assert.True(t, d.did(release) || d.did(releaseUndone) || d.did(recordDone) || d.did(abandon), "%s: the lock is kept", r.name)
			}
		}
	}
}

func TestAReleaseThatFindsTheLockLostIsALoss(t *testing.T) {
	for _, r := range []struct {
		m      machine
		events []event
		want   way
	}{
		{machine{}, []event{won, success}, way{code: Lost, ran: true}},
		{machine{}, []event{won, failure}, way{code: Lost, ran: true}},
		{machine{once: true}, []event{won, todo, success}, way{code: exit.Failed, ran: true}},
		{machine{handover: true}, []event{won, request, known, failure}, way{code: Lost, ran: true}},
		{machine{}, []event{belated}, way{code: NotInTime}},
		{machine{}, []event{terminated, won}, way{code: byTerm}},
		{machine{once: true}, []event{won, already}, way{code: 77}},
		{machine{once: true}, []event{won, terminated}, way{code: byTerm}},
	} {
		d := &drive{machine: r.m, loses: true}
		d.on(event{what: begun})
		d.on(r.events...)
		d.finish()
		assert.Equal(t, r.want, way{d.last.Code, d.ran, d.again}, "%+v", r.events)
		assert.Equal(t, ended, d.phase)
	}
}

func TestASignalThatEndsNothingIsForTheProgramAlone(t *testing.T) {
	d := &drive{}
	d.on(event{what: begun}, event{what: signaled, signal: syscall.SIGUSR1})
	assert.Equal(t, waiting, d.phase)
	d.on(won, event{what: signaled, signal: syscall.SIGUSR1}, terminated)
	assert.Equal(t, []os.Signal{syscall.SIGUSR1, syscall.SIGTERM}, d.passed)
}

func TestTheFirstSignalIsAnnouncedAndTheSecondPassedOnAtOnce(t *testing.T) {
	d := &drive{machine: machine{handover: true}}
	d.on(event{what: begun}, won, terminated)
	assert.Empty(t, d.passed)
	d.on(interruption)
	assert.Equal(t, []os.Signal{syscall.SIGINT}, d.passed)
	d.on(known)
	assert.Equal(t, []os.Signal{syscall.SIGINT}, d.passed, "which was said already")

	d = &drive{machine: machine{handover: true}}
	d.on(event{what: begun}, won, request, interruption)
	assert.Equal(t, []os.Signal{syscall.SIGINT}, d.passed)

	d = &drive{}
	d.on(event{what: begun}, won, terminated)
	assert.Equal(t, []os.Signal{syscall.SIGTERM}, d.passed, "where no end is announced")
}

func TestTheWaitEndsWithOneCodeIfTheLockIsHeldAndAnotherIfNobodyKnows(t *testing.T) {
	for err, code := range map[error]int{nil: NotInTime, errors.New("unavailable"): exit.Failed} {
		d := &drive{}
		d.on(event{what: begun}, event{what: withdrawn, err: err})
		assert.Equal(t, ended, d.phase)
		assert.Equal(t, code, d.last.Code)
	}
}

func TestAProgramThatCanNotBeStartedIsTriedAgainIfThatMayHelp(t *testing.T) {
	for restart, again := range map[bool]int{false: 0, true: 1} {
		m := machine{restart: restart}
		m.on(event{what: begun})
		m.on(won)
		assert.Equal(t, []action{{do: release}}, m.on(event{what: notStarted, end: exit.Error{Code: exit.Failed}}))
		assert.Len(t, m.on(event{what: released}), again)
		assert.Equal(t, exit.Failed, m.last.Code)

		m = machine{restart: restart}
		m.on(event{what: begun})
		m.on(won)
		m.on(event{what: unable, end: exit.Error{Code: 126}})
		assert.Empty(t, m.on(event{what: released}))
		assert.Equal(t, ended, m.phase)
		assert.Equal(t, 126, m.last.Code)
	}
}

func TestOnlyAProgramThatSucceedsByItselfHasDoneIt(t *testing.T) {
	for _, r := range []struct {
		m      machine
		events []event
		want   deed
	}{
		{machine{once: true}, []event{success}, recordDone},
		{machine{once: true}, []event{terminated, success}, recordDone},
		{machine{once: true}, []event{failure}, releaseUndone},
		{machine{once: true}, []event{pressed, success}, releaseUndone},
		{machine{once: true}, []event{beyond, success}, releaseUndone},
		{machine{once: true}, []event{loss, success}, abandon},
		{machine{once: true}, []event{weak, success}, releaseUndone},
		{machine{once: true}, []event{terminated, tooSlow, success}, recordDone},
		{machine{}, []event{success}, release},
		{machine{}, []event{failure}, release},
	} {
		d := &drive{machine: r.m}
		d.on(event{what: begun}, won, todo)
		d.on(r.events...)
		assert.Equal(t, r.want, d.deeds[len(d.deeds)-1], "%+v", r.events)
	}
	for verdict, want := range map[*event]deed{&already: release, &garbled: releaseUndone} { // found under the lock
		d := &drive{machine: machine{once: true}}
		d.on(event{what: begun}, won, *verdict)
		assert.Equal(t, want, d.deeds[len(d.deeds)-1])
	}
}

// world is what can happen around a machine, and what it must not do then.
type world struct {
	machine
	t                                 *testing.T
	path                              []happening
	competes, withdrew, held, program bool
	asks, asksDue, tells, awaits      bool // it waits for a request, for the check, for the announcement, for a start or release
	over                              bool // a signal to end has come since exec began to compete, or the claim too late
	signals                           int
	terms                             int
}

// next are the events that can happen now.
func (w *world) next() (all []event) {
	add := func(can bool, events ...event) {
		if can {
			all = append(all, events...)
		}
	}
	if w.awaits {
		add(w.phase == starting, event{what: started}, event{what: notStarted, end: exit.Error{Code: exit.Failed}}, event{what: unable, end: exit.Error{Code: 126}}, loss)
		add(w.phase == releasing, event{what: released}, event{what: notReleased, err: errSuperseded}, loss)
		return all
	}
	add(w.competes, won, belated, timeout, event{what: unable, end: exit.Error{Code: 77}})
	add(w.signals < 2, terminated)
	add(w.held && w.turn.lost == nil, loss)
	add(w.asksDue, todo, already, garbled)
	add(w.asks, request)
	add(w.tells, known)
	add(w.program, success, failure, pressed, beyond, weak)
	add(w.program && w.signal != nil, tooSlow)
	return all
}

// happens lets an event happen, and checks what the machine does.
func (w *world) happens(e event) {
	w.path = append(slices.Clone(w.path), e.what)
	switch e.what {
	case elected:
		w.competes, w.held, w.over = false, true, w.over || e.late
		w.terms++
	case withdrawn:
		w.competes = false
	case unable, done, due, garbled.what:
		w.competes, w.asksDue = false, false
	case ending:
		w.signals++
		w.over = w.over || !w.program
	case requested:
		w.asks = false
	case announced:
		w.tells = false
	case started:
		w.program = true
	case exited:
		w.program, w.asks, w.tells = false, false, false
	}
	w.awaits = false
	for _, a := range w.on(e) {
		w.does(a.do)
	}
	if w.phase == ended {
		w.holds(!w.program && !w.held && !w.competes, "nothing is left when exec ends")
		w.holds(slices.Contains([]int{0, 3, 77, 126, exit.Failed, NotInTime, Lost, byTerm}, w.last.Code), "the exit code is known")
	}
}

func (w *world) does(do deed) {
	switch do {
	case compete, competeAtOnce, competeLater:
		w.holds(w.turn == (turn{}), "nothing of a turn counts in the next one")
		w.holds(!w.competes && !w.held && !w.program && w.signals == 0, "exec competes for what it does not hold, until it is told to end")
		w.competes, w.withdrew, w.over = true, false, false
	case withdraw:
		w.holds(w.competes && !w.withdrew, "what competes is withdrawn, once")
		w.withdrew = true
	case keep, check:
		w.holds(w.held && !w.over, "a lock that came too late is not kept")
		w.asksDue = do == check
	case start:
		w.holds(w.held && !w.program && !w.over, "the program starts under the lock, before the wait is over and before a signal")
		w.awaits = true
	case watchRequests:
		w.asks = true
	case announce:
		w.tells = true
	case pass, limit, kill:
		w.holds(w.program, "the program is there to be told")
	case release, releaseUndone, recordDone:
		w.holds(w.held && !w.program, "the lock is released when nothing of the program is left")
		w.held, w.awaits, w.asksDue = false, true, false
	case abandon:
		w.holds(w.held && !w.program, "the lock is left when nothing of the program is left")
		w.held, w.asksDue = false, false
	}
}

func (w *world) holds(ok bool, what string) {
	if !ok {
		w.t.Fatalf("%s, but not after %v", what, w.path)
	}
}

// explore goes through all orders of events, up to a number of them, and returns how many there are.
func (w world) explore(depth int) int {
	all := w.next()
	if w.phase != ended {
		w.holds(len(all) > 0, "something can happen until exec ends")
	}
	if depth == 0 || w.terms > 2 || w.phase == ended {
		return 1
	}
	n := 0
	for _, e := range all {
		next := w
		next.happens(e)
		n += next.explore(depth - 1)
	}
	return n
}

// Whatever happens in whichever order, the program runs only under the lock, which is given up only after it.
func TestNoOrderOfEventsStartsAProgramTooLateOrLeavesOne(t *testing.T) {
	n := 0
	for _, m := range []machine{{}, {once: true}, {restart: true}, {handover: true}, {handover: true, restart: true}} {
		w := world{t: t, machine: m}
		w.happens(event{what: begun})
		n += w.explore(8)
	}
	t.Logf("%d orders", n)
	assert.Greater(t, n, 10_000)
}
