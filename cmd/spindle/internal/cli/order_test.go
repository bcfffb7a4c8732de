package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

// An operator looks for the worst, the oldest, the longest.
func TestWhatAnOperatorLooksForIsFirst(t *testing.T) {
	a := held("a", "zoe", at(50), at(102), 3*time.Second)
	b := held("b", "", at(70), at(80), 10*time.Second) // expired
	b.At = at(103)
	c := held("c", "adam", at(60), at(101), 5*time.Second)
	c.Waiters = []table.Ticket{{Time: table.TokenAt(at(100))}}
	free := table.Listing{Observation: table.Observation{Name: "d", At: at(103)}}
	for by, want := range map[string]string{"name": "abcd", "state": "bacd", "holder": "cabd", "age": "acbd", "beat": "bcad", "lease": "bcad", "waiting": "cabd"} {
		entries := func() []entry { return []entry{lockEntry(a), lockEntry(b), lockEntry(c), lockEntry(free)} }
		got, back := "", ""
		for _, e := range sorted(entries(), by, false) {
			got += e.name
		}
		for _, e := range sorted(entries(), by, true) {
			back = e.name + back
		}
		assert.Equal(t, want, got, by)
		assert.Equal(t, want, back, "%s, the other way round", by)
	}
	assert.Len(t, orderNames, len(orders))
	for _, s := range []table.State{table.Free, table.Held, table.Leaving, table.Expired, table.Released, table.Unconfirmed, table.Orphaned, table.Unreadable, partial} {
		assert.Contains(t, states, s, "each state can be chosen")
	}
}
