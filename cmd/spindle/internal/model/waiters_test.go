package model

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

func TestWaitersAreListedForPeople(t *testing.T) {
	l := operator.Listing{Observation: table.Observation{Name: "m", At: commandtest.At(100)}}
	assert.Empty(t, WaiterLines(l)+Waiting(l))
	l.Waiters = []table.Ticket{{ID: "a\nb", Time: table.TokenAt(commandtest.At(70))}, {Time: table.TokenAt(commandtest.At(99)), Set: true}, {ID: "c", Time: table.TokenAt(commandtest.At(101)), Key: "42"}}
	assert.Equal(t, `
  3 processes wait for it:
    1. $'a\nb', for 30s
    2. an unknown process, for 1.0s, together with other locks
    3. c, for 0s, to do 42`, WaiterLines(l))
	assert.Equal(t, "3 waiting, longest 30s", Waiting(l))
	for range 9 {
		l.Waiters = append(l.Waiters, table.Ticket{ID: "d", Time: table.TokenAt(commandtest.At(99))})
	}
	assert.Contains(t, WaiterLines(l), "\n     1. $'a")
	assert.Contains(t, WaiterLines(l), "\n    10. d, for 1.0s\n    and 2 more")
	l.Cut = true
	assert.Contains(t, WaiterLines(l), "  at least 12 processes wait for it:")
	assert.Contains(t, WaiterLines(l), "\n    and at least 2 more")
}
