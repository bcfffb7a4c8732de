//go:build unix

package run

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
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
	already      = event{what: done, end: terminal.Exit{Code: 77}}
	garbled      = event{what: unable, end: terminal.Exit{Code: terminal.Failed, Err: errors.New("garbled")}}
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
	stale   bool // it competed again with something of the last turn
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
				d.stale = d.stale || d.turn != (turn{})
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

func (w way) String() string {
	text := fmt.Sprint(w.code)
	if w.ran {
		text += " ran"
	}
	return text + strings.Repeat(" again", w.again)
}

// Each line is a race: the kind of exec, what came before, two events, and what comes of it if the first or the second of them
// comes first.
const races = `
             | won          | loss     | success  | 76 ran       | 0 ran
             |              | timeout  | term     | 75           | 143
             |              | belated  | term     | 75           | 143
             |              | term     | won      | 143          | 143 ran
once         |              | term     | won      | 143          | 143
             |              | term     | int      | 143          | 130
once         |              | term     | already  | 77           | 77
once         | won          | term     | already  | 143          | 77
once         | won          | term     | todo     | 143          | 143 ran
once         | won          | loss     | todo     | 76           | 76 ran
once         | won          | loss     | already  | 76           | 77
once         | won          | loss     | term     | 76           | 143
once         | won          | garbled  | term     | 1            | 143
once         | won todo     | loss     | success  | 1 ran        | 0 ran
once         | won todo     | loss     | failure  | 76 ran       | 3 ran
restart      | won          | loss     | success  | 76 ran again | 0 ran again
             | won          | loss     | term     | 76 ran       | 76 ran
restart      | won          | loss     | term     | 76 ran       | 76 ran
             | won          | late     | success  | 76 ran       | 0 ran
once         | won todo     | overdue  | success  | 76 ran       | 0 ran
             | won          | unfit    | success  | 76 ran       | 0 ran
             | won          | unfit    | loss     | 76 ran       | 76 ran
             | won          | unfit    | term     | 76 ran       | 76 ran
handover     | won          | unfit    | request  | 76 ran       | 76 ran
             | won          | late     | loss     | 76 ran       | 76 ran
             | won          | term     | failure  | 3 ran        | 3 ran
restart      | won          | term     | failure  | 3 ran        | 143 ran again
             | won          | term     | int      | 130 ran      | 143 ran
handover     | won          | request  | loss     | 76 ran       | 76 ran
handover     | won request  | known    | loss     | 76 ran       | 76 ran
handover,restart | won request | known | loss     | 76 ran again | 76 ran again
handover     | won request  | known    | int      | 130 ran      | 130 ran
handover     | won request  | known    | failure  | 3 ran again  | 3 ran
handover     | won request  | known    | late     | 76 ran again | 76 ran
handover     | won          | request  | int      | 130 ran      | 130 ran
handover     | won          | request  | failure  | 3 ran        | 3 ran
handover     | won term     | known    | int      | 130 ran      | 130 ran
handover     | won term     | known    | loss     | 76 ran       | 76 ran
`

// Of two events at the same instant either may come first.
func TestOfTwoEventsAtTheSameInstantEitherMayComeFirst(t *testing.T) {
	happens := map[string]event{"term": terminated, "int": interruption, "timeout": timeout, "won": won, "belated": belated, "loss": loss, "request": request,
		"known": known, "late": pressed, "overdue": beyond, "unfit": weak, "success": success, "failure": failure, "already": already, "garbled": garbled, "todo": todo}
	for race := range strings.Lines(strings.TrimSpace(races)) {
		var column []string
		for text := range strings.SplitSeq(race, "|") {
			column = append(column, strings.TrimSpace(text))
		}
		for i, order := range [][]string{{column[2], column[3]}, {column[3], column[2]}} {
			d := &drive{machine: machine{once: column[0] == "once", restart: strings.Contains(column[0], "restart"), handover: strings.Contains(column[0], "handover")}}
			d.on(event{what: begun})
			for _, what := range append(strings.Fields(column[1]), order...) {
				require.Contains(t, happens, what)
				d.on(happens[what])
			}
			d.finish()
			assert.Equal(t, column[4+i], way{d.last.Code, d.ran, d.again}.String(), "%s: %s first", race, order[0])
			assert.False(t, d.program, "%s: the program is left", race)
			assert.False(t, d.stale, "%s: something of a turn counts in the next one", race)
			if d.did(keep) || slices.Contains(order, "won") {
				assert.True(t, d.did(release) || d.did(releaseUndone) || d.did(recordDone) || d.did(abandon), "%s: the lock is kept", race)
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
		{machine{once: true}, []event{won, todo, success}, way{code: terminal.Failed, ran: true}},
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

func TestAProgramThatCanNotBeStartedIsTriedAgainIfThatMayHelp(t *testing.T) {
	for restart, again := range map[bool]int{false: 0, true: 1} {
		m := machine{restart: restart}
		m.on(event{what: begun})
		m.on(won)
		assert.Equal(t, []action{{do: release}}, m.on(event{what: notStarted, end: terminal.Exit{Code: terminal.Failed}}))
		assert.Len(t, m.on(event{what: released}), again)
		assert.Equal(t, terminal.Failed, m.last.Code)

		m = machine{restart: restart}
		m.on(event{what: begun})
		m.on(won)
		m.on(event{what: unable, end: terminal.Exit{Code: 126}})
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
