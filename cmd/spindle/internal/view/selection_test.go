package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// An operator looks for the worst, the oldest, the longest.
func TestWhatAnOperatorLooksForIsFirst(t *testing.T) {
	a := commandtest.Held("a", "zoe", commandtest.At(50), commandtest.At(102), 3*time.Second)
	b := commandtest.Held("b", "", commandtest.At(70), commandtest.At(80), 10*time.Second) // expired
	b.At = commandtest.At(103)
	c := commandtest.Held("c", "adam", commandtest.At(60), commandtest.At(101), 5*time.Second)
	c.Waiters = []table.Ticket{{Time: table.TokenAt(commandtest.At(100))}}
	free := operator.Listing{Observation: table.Observation{Name: "d", At: commandtest.At(103)}}
	for by, want := range map[string]string{"name": "abcd", "state": "bacd", "holder": "cabd", "age": "acbd", "beat": "bcad", "lease": "bcad", "waiting": "cabd"} {
		entries := func() []model.Entry {
			return []model.Entry{model.LockEntry(a), model.LockEntry(b), model.LockEntry(c), model.LockEntry(free)}
		}
		got := ""
		for _, e := range sorted(entries(), by) {
			got += e.Name
		}
		assert.Equal(t, want, got, by)
	}
	assert.Len(t, orderNames, len(orders))
	for _, s := range []operator.State{operator.Free, operator.Held, operator.Leaving, operator.Expired, operator.Released, operator.Unconfirmed, operator.Orphaned, operator.Unreadable, model.Partial} {
		assert.Contains(t, model.All, s, "each state can be chosen")
	}
}
