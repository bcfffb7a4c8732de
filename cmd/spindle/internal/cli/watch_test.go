package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
)

func at(s float64) time.Time { return time.Unix(0, 0).Add(time.Duration(s * float64(time.Second))) }

func held(name, holder string, token, heartbeat time.Time, lease time.Duration) table.Listing {
	return table.Listing{Observation: table.Observation{Name: name, At: heartbeat, Exists: true, Heartbeat: heartbeat,
		Token: table.TokenAt(token), Writer: holder, LeaseRecord: &table.LeaseRecord{Lease: lease}}}
}

// A row has what ls shows, as of the read.
func TestARowOfTheScreenIsOfItsRead(t *testing.T) {
	l := held("nightly", "web\n7", at(100), at(103), 10*time.Second)
	l.At = at(107)
	r := lockRow(l)
	assert.Equal(t, []any{"nightly", table.Held, `$'web\n7'`, "7.0s", 6 * time.Second, "6.0s"}, []any{r.Label, r.State, r.Holder, r.Since, r.Left, r.Ends})
	assert.Equal(t, sentence(l), r.Detail(80))
	l.At = at(115)
	r = lockRow(l)
	assert.Equal(t, []any{table.Expired, "2.0s"}, []any{r.State, r.Ends})
	r = lockRow(freeSince("nightly", at(100)))
	assert.Equal(t, table.Released, r.State)
	assert.Zero(t, r.Token, "it is no term's")
}

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

func TestWaitersAreListedForPeople(t *testing.T) {
	l := table.Listing{Observation: table.Observation{Name: "m", At: at(100)}}
	assert.Empty(t, waiterLines(l)+waiting(l))
	l.Waiters = []table.Ticket{{ID: "a\nb", Time: table.TokenAt(at(70))}, {Time: table.TokenAt(at(99)), Set: true}, {ID: "c", Time: table.TokenAt(at(101)), Key: "42"}}
	assert.Equal(t, `
  3 wait for it:
    1. $'a\nb', for 30s
    2. somebody, for 1.0s, and for other locks too
    3. c, for 0s, to do 42`, waiterLines(l))
	assert.Equal(t, "3 waiting, 30s the longest", waiting(l))
	for range 9 {
		l.Waiters = append(l.Waiters, table.Ticket{ID: "d", Time: table.TokenAt(at(99))})
	}
	assert.Contains(t, waiterLines(l), "\n     1. $'a")
	assert.Contains(t, waiterLines(l), "\n    10. d, for 1.0s\n    and 2 more")
	l.Cut = true
	assert.Contains(t, waiterLines(l), "  at least 12 wait for it:")
	assert.Contains(t, waiterLines(l), "\n    and at least 2 more")
}

func TestColumnsFitItsWidth(t *testing.T) {
	long := held("a-lock-with-a-name-that-is-much-too-long-for-a-line", "host.example.com/4711/0c3f7c6e-8f0e-4e0b-9d57-1f4b7a4f2f11", at(1.7e9), at(1.7e9+1), 10*time.Second)
	for _, width := range []int{60, 80, 200} {
		for _, line := range (&columns{names: lockColumns}).lines(&terminal{width: width}, []entry{lockEntry(long)}) {
			assert.LessOrEqual(t, length(line), width, line)
		}
	}
	assert.Len(t, (&columns{names: lockColumns}).lines(&terminal{width: 80}, []entry{lockEntry(long)}), 3)
	assert.Len(t, (&columns{names: lockColumns}).lines(&terminal{}, []entry{lockEntry(long)}), 2)
}
