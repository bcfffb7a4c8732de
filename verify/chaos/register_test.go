//go:build chaos && unix

package chaos

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// The register is checked as a swap register: a write replaces the value and returns the previous one. Every value is
// written once, so after a lost update, two writes have found the same value.
var register = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(swap), output.(found)
		if out.known && out.value != state.(int64) {
			return false, state
		}
		if in.readOnly {
			return true, state
		}
		return true, in.value
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(swap), output.(found)
		what := "read"
		if !in.readOnly {
			what = fmt.Sprintf("%s writes %d under %d", in.who, in.value, in.token)
		}
		if out.known {
			what += fmt.Sprintf(" over %d", out.value)
		}
		return what
	},
}

type swap struct {
	who          string
	token, value int64
	readOnly     bool
}

type found struct {
	known bool
	value int64
}

// seen returns the values that were read by any process; the writes of these values have been applied.
func seen(writes []*write, finals []record) map[int64]bool {
	values := map[int64]bool{}
	for _, w := range writes {
		if w.outcome == kindAccepted && !w.Blind {
			values[w.Prev] = true
		}
	}
	for _, r := range finals {
		values[r.Value] = true
	}
	return values
}

// operations returns the histories of a lock's registers, by row. A write with an unknown outcome completes at
// infinity. If its value was never read, it is left out: it can be placed last, where it does no harm, and in any other
// place the next write would be blind or unknown as well, and would not notice its absence. This keeps the search
// short, which is exponential in the number of such writes.
func operations(writes []*write, finals []record) map[int64][]porcupine.Operation {
	happened := seen(writes, finals)
	rows := map[int64][]porcupine.Operation{}
	clients := map[string]int{}
	client := func(who string) int {
		if _, ok := clients[who]; !ok {
			clients[who] = len(clients)
		}
		return clients[who]
	}
	for _, w := range writes {
		who := w.Who
		switch w.outcome {
		case kindFenced:
			continue // a read of its value is then one of a value that was never written
		case kindUnknown:
			if !happened[w.Value] {
				continue
			}
			who = fmt.Sprintf("%s, write %d", who, w.Value) // a line of its own in the picture
		}
		rows[w.Row] = append(rows[w.Row], porcupine.Operation{
			ClientId: client(who),
			Input:    swap{who: w.Who, token: int64(w.Token), value: w.Value},
			Output:   found{known: w.outcome == kindAccepted && !w.Blind, value: w.Prev},
			Call:     w.call,
			Return:   w.end,
		})
	}
	for _, r := range finals {
		rows[r.Row] = append(rows[r.Row], porcupine.Operation{
			ClientId: client("the end"), Input: swap{readOnly: true}, Output: found{known: true, value: r.Value}, Call: r.From, Return: r.At,
		})
	}
	return rows
}

const (
	yes = porcupine.Ok
	no  = porcupine.Illegal
)

// linearizable checks one register's history. If the history is not linearizable, it draws the history in a file at
// that path.
func linearizable(ops []porcupine.Operation, path string) porcupine.CheckResult {
	result, info := porcupine.CheckOperationsVerbose(register, ops, time.Minute)
	if result != yes {
		if err := porcupine.VisualizePath(register, info, path); err != nil {
			panic(err) // a full disk
		}
	}
	return result
}
