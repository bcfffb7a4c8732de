package serve

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const lease = 9 * time.Second

var began = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return began.Add(time.Duration(seconds * float64(time.Second)))
}

// A scene is a table with one lock, as looks see it.
type scene struct {
	history
	row operator.Listing
}

// holds lets a holder claim the lock at a time.
func (s *scene) holds(id string, since float64) {
	s.row = operator.Listing{Observation: table.Observation{Exists: true, Token: table.TokenAt(at(since)), Writer: id,
		Heartbeat: at(since + 0.01), LeaseRecord: &table.LeaseRecord{Lease: lease, ID: id}}}
}

func (s *scene) beats(seconds float64) { s.row.Heartbeat = at(seconds) }

func (s *scene) announces() { s.row.Writer = "" }

func (s *scene) releases(seconds float64) {
	s.row = operator.Listing{Observation: table.Observation{Exists: true, Token: table.TokenAt(at(seconds))}}
}

func (s *scene) look(seconds float64) []touch {
	s.row.Name, s.row.At = "job", at(seconds)
	touched, _ := s.see([]operator.Listing{s.row}, at(seconds))
	return touched
}

// told is the terms of the lock as texts.
func (s *scene) told() (all []string) {
	for _, t := range s.locks["job"].terms {
		text := fmt.Sprintf("%s %v-", t.holder, t.from.Sub(began).Seconds())
		if !t.to.IsZero() {
			text += fmt.Sprintf("%v %s", t.to.Sub(began).Seconds(), t.end)
		}
		all = append(all, text)
	}
	return all
}

func TestTheTableTellsWhyATermEnded(t *testing.T) {
	for name, c := range map[string]struct {
		play func(*scene)
		want []string
	}{
		"released": {func(s *scene) { s.beats(3); s.look(3.5); s.releases(4); s.look(4.5) }, []string{"a 0-4 released"}},
		"released and taken between two looks": {func(s *scene) { s.beats(3); s.look(3.5); s.holds("b", 4); s.look(4.5) },
			[]string{"a 0-4 released", "b 4-"}},
		"handed over": {func(s *scene) {
			s.beats(3)
			s.announces()
			s.look(3.5)
			s.beats(6)
			s.holds("b", 6.1)
			s.look(6.2)
		},
			[]string{"a 0-6.1 handed over", "b 6.1-"}},
		"announced and released": {func(s *scene) { s.beats(3); s.announces(); s.look(3.5); s.releases(4); s.look(4.5) }, []string{"a 0-4 handed over"}},
		"expired":                {func(s *scene) { s.beats(3); s.look(3.5); s.look(12.5) }, []string{"a 0-12 expired"}},
		"expired and taken between two looks": {func(s *scene) { s.beats(3); s.look(11.9); s.holds("b", 12.2); s.look(12.5) },
			[]string{"a 0-12 expired", "b 12.2-"}},
		"expired, and released late": {func(s *scene) { s.beats(3); s.look(12.5); s.releases(13); s.look(13.5) }, []string{"a 0-12 expired"}},
		"expired, and only slow":     {func(s *scene) { s.beats(3); s.look(12.5); s.beats(13); s.look(13.5) }, []string{"a 0-"}},
		"taken again by its holder":  {func(s *scene) { s.beats(3); s.look(3.5); s.holds("a", 4); s.look(4.5) }, []string{"a 0-4 reclaimed", "a 4-"}},
		"expired and taken soon after a look, long before the next one": {func(s *scene) { s.beats(3); s.look(8); s.holds("b", 12.4); s.beats(29); s.look(30) },
			[]string{"a 0-12 expired", "b 12.4-"}},
		"late and released, long before the next look": {func(s *scene) { s.beats(3); s.look(8); s.beats(8.2); s.releases(12.3); s.look(30) },
			[]string{"a 0-12.3 unseen"}},
		"taken too long after a look": {func(s *scene) { s.beats(3); s.look(7.8); s.holds("b", 12.4); s.look(12.5) }, []string{"a 0-12.4 unseen", "b 12.4-"}},
		"the looks are too far apart": {func(s *scene) { s.beats(3); s.look(3.5); s.holds("b", 50); s.look(52) }, []string{"a 0-50 unseen", "b 50-"}},
		"rows deleted":                {func(s *scene) { s.beats(3); s.look(3.5); s.row = operator.Listing{}; s.look(4.5) }, []string{"a 0-4.5 deleted"}},
		"a claim that is not confirmed is no term": {func(s *scene) {
			s.releases(4)
			s.look(4.5)
			s.holds("b", 5)
			s.row.Heartbeat, s.row.LeaseRecord = at(5), nil
			s.look(5.5)
		}, []string{"a 0-4 released"}},
		"a term between two looks": {func(s *scene) { s.releases(4); s.look(4.5); s.releases(5.2); s.look(5.5) },
			[]string{"a 0-4 released", " 4.5-5.2 missed"}},
		"a term between two looks, of a lock whose row was pruned": {func(s *scene) {
			s.row = operator.Listing{}
			s.look(1.5)
			s.look(4.5)
			s.releases(5.2)
			s.look(5.5)
		}, []string{"a 0-1.5 deleted", " 4.5-5.2 missed"}},
		"a claim that is retracted is no term": {func(s *scene) {
			s.releases(4)
			s.look(4.5)
			s.row.Token, s.row.Freed = s.row.Token+1, at(4)
			s.look(5.5)
		}, []string{"a 0-4 released"}},
	} {
		t.Run(name, func(t *testing.T) {
			var s scene
			s.holds("a", 0)
			s.look(1)
			c.play(&s)
			assert.Equal(t, c.want, s.told())
		})
	}
}

// TestALockIsKnownFromThePresentTermOn: what was before the first look is not known, and is not called a gap.
func TestALockIsKnownFromThePresentTermOn(t *testing.T) {
	var s scene
	s.holds("a", -500)
	s.beats(0)
	s.look(1)
	assert.Equal(t, at(-500), s.locks["job"].known)
	s = scene{}
	s.releases(-20)
	s.look(1)
	assert.Equal(t, at(-20), s.locks["job"].known)
	for _, row := range []table.Observation{{Freed: at(-10)}, {Heartbeat: at(0), Began: at(-10), LeaseRecord: &table.LeaseRecord{Lease: lease}}} {
		s = scene{}
		row.Exists, row.Token, row.Writer = true, table.TokenAt(at(-20)), "a"
		s.row.Observation = row
		s.look(1)
		assert.Equal(t, at(-10), s.locks["job"].known, "a mutex was released, or claimed, later than its token says")
	}
	s = scene{}
	s.see(nil, at(0))
	s.holds("a", 5)
	s.look(6)
	assert.Equal(t, at(6), s.locks["job"].known, "it had no row before")
	assert.Equal(t, 1, s.locks["job"].changes)
}

// Terms of which only the ends are known are different terms: a page replaces a term by another with the same key.
func TestTermsThatWereMissedAreToldApart(t *testing.T) {
	var s scene
	var terms []termWire
	for i := range 5 {
		s.releases(float64(i) + 0.5)
		f := lookOf(at(float64(i+1)), 0, s.look(float64(i+1)), nil)
		require.Len(t, f.Locks, 1)
		terms = shows(terms, f.Locks[0])
	}
	assert.Len(t, terms, 4)
	assert.Equal(t, s.locks["job"].wire(4).Terms, terms)
}

// A term is counted when it begins, once, and so is one that began and ended between two looks. An alert on a lock that
// changes hands too often relies on the number.
func TestATermIsCountedWhenItBegins(t *testing.T) {
	var s scene
	for i, step := range []struct {
		happens func()
		count   int
	}{
		{func() { s.holds("a", 0) }, 0}, // it began before the first look
		{func() { s.beats(1) }, 0},
		{func() { s.announces() }, 0},
		{func() { s.holds("b", 2.5) }, 1},
		{func() { s.releases(3.5) }, 1},
		{func() {}, 1},
		{func() { s.releases(6.5) }, 2}, // somebody held it in between
		{func() { s.holds("b", 7.5); s.row.Heartbeat, s.row.LeaseRecord = at(7.5), nil }, 2},
		{func() { s.holds("b", 7.5) }, 3},
		{func() { s.holds("b", 9.5) }, 4},
		{func() { s.row.LeaseRecord.Lease = time.Millisecond }, 4}, // it has expired
		{func() { s.row.LeaseRecord.Lease = lease }, 4},
		{func() { s.row = operator.Listing{} }, 4},
		{func() { s.holds("c", 12.5) }, 5},
	} {
		step.happens()
		s.look(float64(i + 1))
		assert.Equal(t, step.count, s.locks["job"].changes, "step %d", i)
	}
}

func TestJeopardyIsCountedOnce(t *testing.T) {
	var s scene
	s.holds("a", 0)
	for _, seconds := range []float64{1, 5.9, 6.1, 7, 8} {
		s.look(seconds)
	}
	s.beats(8.5)
	s.look(8.6)
	s.look(15)
	assert.Equal(t, 2, s.locks["job"].jeopardies)
}

// A page that is open shows a jeopardy when it happens, although nothing else of the lock has changed.
func TestAJeopardyIsToldAtOnce(t *testing.T) {
	var s scene
	s.holds("a", 0)
	for _, c := range []struct {
		seconds float64
		told    int
	}{{1, 1}, {6.009, 0}, {6.01, 1}, {7, 0}, {9, 0}, {9.01, 1}} {
		f := lookOf(at(c.seconds), 0, s.look(c.seconds), nil)
		assert.Len(t, f.Locks, c.told, "at %v", c.seconds)
	}
	assert.Equal(t, 1, s.locks["job"].jeopardies)
}

// A page that is open says how many processes wait, and how long the longest has waited, whoever comes or gives up between
// two reads. With priorities, this need not be the first in the queue.
func TestAPageIsToldWhenTheWaitersChange(t *testing.T) {
	waiter := func(since float64, rank int) table.Ticket {
		return table.Ticket{Time: table.TurnFor(table.TokenAt(at(since)), rank), Rank: rank}
	}
	queue := []table.Ticket{waiter(-2, 0), waiter(-1, 0), waiter(-4, 1), waiter(-3, 1)}
	some := func(set int) (all []table.Ticket) {
		for i, w := range queue {
			if set>>i&1 == 1 {
				all = append(all, w)
			}
		}
		return all
	}
	for before := range 1 << len(queue) {
		for after := range 1 << len(queue) {
			var s scene
			s.holds("a", 0)
			s.row.Waiters = some(before)
			page := lookOf(at(1), 0, s.look(1), nil).Locks[0]
			s.row.Waiters = some(after)
			now := lookOf(at(1), 0, s.look(1), nil).Locks
			if len(now) > 0 {
				page = now[0]
			}
			want := model.JSONOf(s.row)
			assert.Equal(t, []any{want.Waiting, want.LongestWait}, []any{page.Waiting, page.LongestWait}, "%v, then %v", some(before), some(after))
		}
	}
}

// A lock whose holder was killed can stay free for hours. When somebody takes it then, the term that just became history is
// already too old to be kept, and serve goes on.
func TestALockThatIsTakenHoursAfterItExpiredIsShown(t *testing.T) {
	for _, taken := range []float64{3608, 3609, 3610, 8000} {
		for _, released := range []bool{false, true} {
			var s scene
			s.holds("a", 0)
			s.look(1)
			s.look(20)
			s.holds("b", taken)
			var want []string
			if taken < 3609 {
				want = []string{"a 0-9.01 expired"}
			}
			if released {
				s.releases(taken + 0.5)
			} else {
				want = append(want, fmt.Sprintf("b %v-", taken))
			}
			f := lookOf(at(taken+1), 0, s.look(taken+1), nil)
			assert.Equal(t, want, s.told())
			require.Len(t, f.Locks, 1)
			assert.Len(t, f.Locks[0].Terms, len(want))
			assert.True(t, f.Locks[0].All, "the page forgets the old term too")
		}
	}
}

// The history keeps the last term of an expired lock until another process takes the lock, however long ago the term ended. If the history
// counted the term again at each read, the lock would seem to change hands all the time.
func TestALockThatNobodyTakesKeepsItsLastTerm(t *testing.T) {
	var s scene
	s.holds("a", 0)
	s.look(1)
	for now := 20.0; now < 3*3600; now += 500 {
		s.look(now)
		assert.Equal(t, []string{"a 0-9.01 expired"}, s.told(), "after %v s", now)
		assert.Zero(t, s.locks["job"].changes, "after %v s", now)
	}
}

// TestTermsAreForgottenAfterAnHour, and so is a lock whose rows are gone, once it has none.
func TestTermsAreForgottenAfterAnHour(t *testing.T) {
	var s scene
	s.holds("a", 0)
	s.look(1)
	s.releases(2)
	s.look(2.5)
	s.look(3601)
	assert.Len(t, s.told(), 1)
	_, forgotten := s.see(nil, at(3601.5))
	assert.Empty(t, forgotten)
	assert.Equal(t, operator.Free, s.locks["job"].State())
	_, forgotten = s.see(nil, at(3603))
	assert.Equal(t, []int{0}, forgotten)
	assert.Empty(t, s.locks)
}

// TestAPartitionHasItsMembersTime: it is held for as long as the member is, and its jeopardy is the member's.
func TestAPartitionHasItsMembersTime(t *testing.T) {
	const member, partition = "orders/member/0007", "orders/partition/eu"
	since := func(s float64) table.Token { return table.TokenAt(at(s)) }
	look := func(h *history, now, beat float64) {
		all := []table.Row{
			{Name: member, Heartbeat: at(beat), Token: at(0), Writer: "a"},
			{Name: table.LeaseKey(member, since(0)), Heartbeat: at(0), Token: at(0), Writer: `{"lease":"9s","id":"a","plan":"p"}`},
			{Name: partition, Heartbeat: at(1.1), Token: at(1), Writer: table.LeaseKey(member, since(0))},
			{Name: table.LeaseKey(partition, since(1)), Heartbeat: at(1), Token: at(1), Writer: `{"with":"` + table.LeaseKey(member, since(0)) + `","for":"9s"}`},
		}
		found, _, err := operator.List(t.Context(), table.Table{Store: &rows{rows: all, at: at(now)}}, "", true)
		require.NoError(t, err)
		h.see(found, at(now))
	}
	var h history
	look(&h, 2, 1.5)
	look(&h, 20, 19.5)
	k := h.locks[partition]
	require.Len(t, k.terms, 1)
	assert.Equal(t, "a", k.terms[0].holder)
	assert.Equal(t, at(1), k.terms[0].from)
	assert.Equal(t, operator.Held, k.State(), "by the heartbeats of its member")
	wire := k.wire(1)
	assert.Equal(t, []string{"orders", member}, []string{wire.Group, wire.Member})
	assert.Equal(t, []string{"orders", ""}, []string{h.locks[member].wire(1).Group, h.locks[member].wire(1).Member})
	look(&h, 26, 19.5)
	assert.Equal(t, []int{1, 0}, []int{h.locks[member].jeopardies, k.jeopardies})
	look(&h, 29, 19.5)
	assert.Equal(t, model.EndExpired, k.terms[0].end)
}
