package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
)

// What is said of looks that leave released locks out is not more than they know.
func TestChangesOfLooksWithoutReleasedLocks(t *testing.T) {
	var s story
	texts := func(l ...table.Listing) (all []string) {
		for _, c := range s.next(look{locks: l, at: at(200), busy: true}) {
			all = append(all, c.Name+" "+c.Text)
		}
		return all
	}
	a, b := held("a", "x", at(100), at(101), time.Second), held("b", "x", at(100), at(101), time.Second)
	texts(a, b)
	assert.Empty(t, s.missing([]table.Listing{a, b}))
	assert.Equal(t, []string{"b"}, s.missing([]table.Listing{a}))
	assert.Equal(t, []string{"b released"}, texts(a, freeSince("b", at(102))))
	assert.Empty(t, s.missing([]table.Listing{a}), "it is not asked for twice")
	assert.Empty(t, texts(a))
	assert.Equal(t, []string{"a released, or gone: its row was pruned, or somebody deleted it"}, texts())
	assert.Empty(t, texts())
	assert.Equal(t, []string{"b held by x, token 103000000"}, texts(held("b", "x", at(103), at(103), time.Second)))
}

func TestWatchTellsOfEveryChangeOnce(t *testing.T) {
	var s story
	texts := func(l ...table.Listing) (all []string) {
		for _, c := range s.next(look{locks: l, at: at(200)}) {
			all = append(all, c.Name+" "+c.Text)
		}
		return all
	}
	a := held("x", "a", at(100), at(101), time.Second)
	assert.Equal(t, []string{"x held by a, token 100000000"}, texts(a))
	a.Heartbeat, a.At = at(102), at(102)
	assert.Empty(t, texts(a))
	a.At = at(104)
	assert.Equal(t, []string{"x expired, 1s after the last heartbeat of a"}, texts(a))
	assert.Equal(t, []string{"x held by b, token 105000000"}, texts(held("x", "b", at(105), at(106), time.Second)))
	assert.Equal(t, []string{"x held by b, token 107000000"}, texts(held("x", "b", at(107), at(108), time.Second)))
	assert.Equal(t, []string{"x gone: its row was pruned, or somebody deleted it"}, texts())
	assert.Empty(t, texts())
}

func TestWatchDoesNotCallALockGoneThatNeverWas(t *testing.T) {
	var s story
	free := table.Listing{Observation: table.Observation{Name: "x", At: at(100)}}
	first := s.next(look{locks: []table.Listing{free}, at: at(100)})
	require.Len(t, first, 1)
	assert.Contains(t, first[0].Text, "nobody has claimed it yet")
	assert.Empty(t, s.next(look{locks: []table.Listing{free}, at: at(101)}))
	s.next(look{locks: []table.Listing{held("x", "a", at(102), at(103), time.Second)}, at: at(103)})
	last := s.next(look{locks: []table.Listing{free}, at: at(104)})
	require.Len(t, last, 1)
	assert.Contains(t, last[0].Text, "gone")
}

// Who begins to wait, or gives up, changes no lock.
func TestWatchTellsNothingOfThoseWhoWait(t *testing.T) {
	var s story
	next := func(l ...table.Listing) (texts []string) {
		for _, c := range s.next(look{locks: l, at: at(200)}) {
			texts = append(texts, c.Name+" "+c.Text)
		}
		return texts
	}
	free := table.Listing{Observation: table.Observation{Name: "y", At: at(200)}, Waiters: []table.Ticket{{ID: "w"}}}
	x := held("x", "a", at(100), at(101), time.Second)
	assert.Len(t, next(x), 1)
	x.Waiters = free.Waiters
	assert.Empty(t, next(x, free))
	x.Waiters = nil
	assert.Empty(t, next(x))
	assert.Empty(t, next(x, free))
	assert.Equal(t, []string{"y held by w, token 100000000"}, next(x, held("y", "w", at(100), at(101), time.Second)))
	assert.Equal(t, []string{"y gone: its row was pruned, or somebody deleted it"}, next(x, free))
	assert.Empty(t, next(x))
}
