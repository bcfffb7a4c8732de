package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

func TestWatchTellsOfEveryChangeOnce(t *testing.T) {
	var s story
	texts := func(l ...operator.Listing) (all []string) {
		for _, c := range s.next(l, nil, commandtest.At(200)) {
			all = append(all, c.Name+" "+c.Text)
		}
		return all
	}
	a := commandtest.Held("x", "a", commandtest.At(100), commandtest.At(101), time.Second)
	assert.Equal(t, []string{"x held by a, token 100000000"}, texts(a))
	a.Heartbeat, a.At = commandtest.At(102), commandtest.At(102)
	assert.Empty(t, texts(a))
	a.At = commandtest.At(104)
	assert.Equal(t, []string{"x expired, 1s after the last heartbeat of a"}, texts(a))
	assert.Equal(t, []string{"x held by b, token 105000000"}, texts(commandtest.Held("x", "b", commandtest.At(105), commandtest.At(106), time.Second)))
	assert.Equal(t, []string{"x held by b, token 107000000"}, texts(commandtest.Held("x", "b", commandtest.At(107), commandtest.At(108), time.Second)))
	assert.Equal(t, []string{"x its row was pruned or deleted"}, texts())
	assert.Empty(t, texts())
}

func TestWatchDoesNotCallALockGoneThatNeverWas(t *testing.T) {
	var s story
	free := operator.Listing{Observation: table.Observation{Name: "x", At: commandtest.At(100)}}
	first := s.next([]operator.Listing{free}, nil, commandtest.At(100))
	require.Len(t, first, 1)
	assert.Contains(t, first[0].Text, "it was never claimed")
	assert.Empty(t, s.next([]operator.Listing{free}, nil, commandtest.At(101)))
	s.next([]operator.Listing{commandtest.Held("x", "a", commandtest.At(102), commandtest.At(103), time.Second)}, nil, commandtest.At(103))
	last := s.next([]operator.Listing{free}, nil, commandtest.At(104))
	require.Len(t, last, 1)
	assert.Contains(t, last[0].Text, "its row was pruned or deleted")
}

// A process that begins to wait, or gives up, changes no lock.
func TestWatchTellsNothingOfThoseWhoWait(t *testing.T) {
	var s story
	next := func(l ...operator.Listing) (texts []string) {
		for _, c := range s.next(l, nil, commandtest.At(200)) {
			texts = append(texts, c.Name+" "+c.Text)
		}
		return texts
	}
	free := operator.Listing{Observation: table.Observation{Name: "y", At: commandtest.At(200)}, Waiters: []table.Ticket{{ID: "w"}}}
	x := commandtest.Held("x", "a", commandtest.At(100), commandtest.At(101), time.Second)
	assert.Len(t, next(x), 1)
	x.Waiters = free.Waiters
	assert.Empty(t, next(x, free))
	x.Waiters = nil
	assert.Empty(t, next(x))
	assert.Empty(t, next(x, free))
	assert.Equal(t, []string{"y held by w, token 100000000"}, next(x, commandtest.Held("y", "w", commandtest.At(100), commandtest.At(101), time.Second)))
	assert.Equal(t, []string{"y its row was pruned or deleted"}, next(x, free))
	assert.Empty(t, next(x))
}
