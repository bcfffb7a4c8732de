package view

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

var at = commandtest.At

// told is what a story says after a read.
func (s *story) told(found ...operator.Listing) (texts []string) {
	locks, groups := model.Gather(found, "")
	for _, c := range s.next(locks, groups, at(200)) {
		texts = append(texts, c.Name+" "+c.Text)
	}
	return texts
}

// Watch says each change once. A heartbeat is none, nor is a process that begins to wait or gives up, and a lock is not
// called gone that never was.
func TestWatchTellsOfEveryChangeOnce(t *testing.T) {
	held := func(id string, token float64) operator.Listing {
		return commandtest.Held("x", id, at(token), at(token+1), time.Second)
	}
	a := held("a", 100)
	beaten, expired, waited := a, a, a
	beaten.Heartbeat, beaten.At = at(102), at(102)
	expired.Heartbeat, expired.At = at(102), at(104)
	waited.Waiters = []table.Ticket{{ID: "w"}}
	free := operator.Listing{Observation: table.Observation{Name: "y", At: at(200)}}
	wanted := free
	wanted.Waiters = waited.Waiters
	y := commandtest.Held("y", "w", at(100), at(101), time.Second)
	var s story
	for i, step := range []struct {
		found []operator.Listing
		want  []string
	}{
		{[]operator.Listing{a, free}, []string{"x held by a, token 100000000", "y free: it was never claimed, or its row was pruned"}},
		{[]operator.Listing{beaten, free}, nil},
		{[]operator.Listing{waited, wanted}, nil},
		{[]operator.Listing{beaten}, nil},
		{[]operator.Listing{beaten, wanted}, nil},
		{[]operator.Listing{beaten, y}, []string{"y held by w, token 100000000"}},
		{[]operator.Listing{expired, wanted}, []string{"x expired, 1s after the last heartbeat of a", "y its row was pruned or deleted"}},
		{[]operator.Listing{held("b", 105)}, []string{"x held by b, token 105000000"}},
		{[]operator.Listing{held("b", 107)}, []string{"x held by b, token 107000000"}},
		{nil, []string{"x its row was pruned or deleted"}},
		{nil, nil},
	} {
		assert.Equal(t, step.want, s.told(step.found...), "step %d", i)
	}
}

func TestMovesAreTheNumberOfPartitions(t *testing.T) {
	a, b := commandtest.MemberOf(0, "a", at(100), at(103)), commandtest.MemberOf(1, "b", at(101), at(103))
	of := func(m operator.Listing, token float64, from, to int) (all []operator.Listing) {
		for i := from; i < to; i++ {
			all = append(all, commandtest.PartitionWith(m, fmt.Sprint(i), at(token)))
		}
		return all
	}
	var given []operator.Listing
	for i := range 3 {
		given = append(given, commandtest.FreeSince(table.PartitionName("orders", fmt.Sprint(i)), at(120)))
	}
	both, left := []operator.Listing{a, b}, []operator.Listing{a, commandtest.FreeSince(b.Name, at(104))}
	var s story
	for i, step := range []struct {
		found []operator.Listing
		want  []string
	}{
		{slices.Concat(both[:1], of(a, 102, 0, 10)), []string{"orders/member/0000 joined by a, token 100000000", "orders/ 10 partitions held by a"}},
		{slices.Concat(both[:1], of(a, 102, 0, 10)), nil},
		{slices.Concat(both, of(b, 110, 0, 4), of(a, 102, 4, 10)), []string{"orders/member/0001 joined by b, token 101000000", "orders/ 4 partitions moved from a to b"}},
		{slices.Concat(both, given, of(b, 110, 3, 4), of(a, 102, 4, 10)), []string{"orders/ 3 partitions without a holder, last held by b"}},
		// a look between a give and a take loses nothing
		{slices.Concat(both, of(a, 130, 0, 2), of(b, 131, 2, 3), of(b, 110, 3, 4), of(a, 102, 4, 10)), []string{"orders/ 2 partitions moved from b to a", "orders/ 1 partition taken again by b"}},
		{slices.Concat(left, of(a, 130, 0, 2), of(a, 141, 2, 4), of(a, 102, 4, 10)), []string{"orders/member/0001 left by b", "orders/ 2 partitions moved from b to a"}},
		{slices.Concat(left, of(a, 130, 0, 2), of(a, 141, 2, 4), of(a, 102, 4, 10)), nil},
	} {
		assert.Equal(t, step.want, s.told(step.found...), "step %d", i)
	}
}

// A killed member did not leave: nobody should look for a person who stopped it. A claim is no member yet, a heartbeat that
// arrives late begins no term, and a slot that was in use once is no news.
func TestAMemberComesAndGoes(t *testing.T) {
	member := func(heartbeat, seen float64) operator.Listing {
		b := commandtest.MemberOf(1, "b", at(101), at(heartbeat))
		b.At = at(seen)
		return b
	}
	claim := func(seen float64) operator.Listing {
		b := member(101, seen)
		b.LeaseRecord = nil
		return b
	}
	free := func(since float64) operator.Listing { return commandtest.FreeSince(member(0, 0).Name, at(since)) }
	const joined, silent = "joined by b, token 101000000", "ended: b sent no heartbeat within its lease of 10s"
	for _, c := range []struct {
		seen []operator.Listing
		want []string
	}{
		{[]operator.Listing{member(103, 103.5), free(104)}, []string{joined, "left by b"}},
		{[]operator.Listing{member(103, 112.5), free(112.9)}, []string{joined, "left by b"}},
		{[]operator.Listing{member(103, 112.5), free(113.01)}, []string{joined, silent}},
		{[]operator.Listing{member(103, 114), free(130)}, []string{"expired, 10s after the last heartbeat of b", silent}},
		{[]operator.Listing{member(103, 104), free(120)}, []string{joined, "ended: b left, or sent no heartbeat within its lease of 10s"}},
		{[]operator.Listing{claim(101), free(104)}, []string{"claimed by b", "left by b"}},
		{[]operator.Listing{claim(101), member(102, 102)}, []string{"claimed by b", joined}},
		{[]operator.Listing{member(103, 103), member(103, 115), member(125, 127)}, []string{joined, "expired, 10s after the last heartbeat of b", "heard from again: b"}},
		{[]operator.Listing{free(50)}, nil},
	} {
		var s story
		var told []string
		for _, l := range c.seen {
			_, groups := model.Gather([]operator.Listing{l}, "")
			for _, change := range s.next(nil, groups, l.At) {
				told = append(told, change.Text)
				if l.Heartbeat.IsZero() {
					assert.True(t, l.At.Equal(change.At), "it says when the term ended")
				}
			}
		}
		assert.Equal(t, c.want, told, "%+v", c.seen)
	}
}

// inUTC returns the changes with comparable times.
func inUTC(all []change) []change {
	for i := range all {
		all[i].At = all[i].At.UTC()
	}
	return all
}

// A line of watch begins with the time of the change, by Spanner's clock and as exactly as the table shows it: the begin of
// a term, the end of a lease, or a release, and only otherwise the time of the read. Programs get the lock as it is now.
func TestEachChangeSaysWhenItHappened(t *testing.T) {
	l := commandtest.Held("x", "a", at(100), at(103), commandtest.Lease)
	l.At = at(104)
	changed := func(change func(l *operator.Listing)) operator.Listing {
		record := *l.LeaseRecord
		l := l
		l.LeaseRecord = &record
		change(&l)
		return l
	}
	claimed := changed(func(l *operator.Listing) { l.LeaseRecord = nil })
	leaving := changed(func(l *operator.Listing) { l.Writer, l.LeaseRecord.ID, l.At = "", "a", at(105) })
	expired := changed(func(l *operator.Listing) { l.At = at(150) })
	free := changed(func(l *operator.Listing) { l.Exists = false })
	orphaned := changed(func(l *operator.Listing) { l.Exists, l.OrphanLeases = false, map[table.Token]table.LeaseRecord{7: {}} })
	next := changed(func(l *operator.Listing) {
		l.Token, l.Heartbeat, l.Writer, l.At = table.TokenAt(at(120)), at(121), "b", at(122)
	})
	began := changed(func(l *operator.Listing) {
		l.Token, l.Heartbeat, l.Began, l.At = table.TokenAt(at(110)), at(121), at(119), at(122)
	})
	nextLeaves := changed(func(l *operator.Listing) {
		l.Token, l.Heartbeat, l.Writer, l.LeaseRecord.ID, l.At = table.TokenAt(at(120)), at(121), "", "b", at(122)
	})
	nextExpired := changed(func(l *operator.Listing) { l.Token, l.Heartbeat, l.At = table.TokenAt(at(120)), at(121), at(150) })
	unreadable := changed(func(l *operator.Listing) { l.Unreadable = table.ErrNewer })
	released := commandtest.FreeSince("x", at(106))
	released.At = at(107)
	freed := released
	freed.Freed = at(106.5)
	again := commandtest.FreeSince("x", at(108))
	again.At = at(109)
	never := operator.Listing{}
	for i, c := range []struct {
		was, now operator.Listing
		at       float64
	}{
		{never, l, 100}, {never, claimed, 100}, {never, leaving, 100}, {never, expired, 113}, {never, released, 106}, {never, freed, 106.5}, {never, began, 119}, {never, orphaned, 104}, {never, unreadable, 104},
		{claimed, l, 104}, {l, leaving, 105}, {l, expired, 113}, {leaving, expired, 113}, {expired, l, 104}, {l, unreadable, 104}, {l, orphaned, 104},
		{l, released, 106}, {leaving, freed, 106.5}, {released, again, 108}, {claimed, released, 106},
		{l, next, 120}, {released, next, 120}, {expired, began, 119}, {l, nextLeaves, 120}, {l, nextExpired, 131}, {released, claimed, 100}, {l, free, 104}, {released, free, 104}, {expired, free, 104}, {claimed, free, 104}, {orphaned, free, 104}, {unreadable, free, 104},
	} {
		var s story
		if c.was.Name != "" {
			s.next([]operator.Listing{c.was}, nil, c.was.At)
		}
		got := inUTC(s.next([]operator.Listing{c.now}, nil, at(1000)))
		text := model.Change(c.now)
		if c.now.State() == operator.Free {
			text = gone
		}
		assert.Equal(t, []change{{at(c.at).UTC(), "x", c.now.State(), text, model.JSONOf(c.now)}}, got, "case %d", i)
		assert.Empty(t, s.next([]operator.Listing{c.now}, nil, at(1001)))
	}
	var s story
	s.next([]operator.Listing{l}, nil, at(104))
	lost := operator.Listing{Observation: table.Observation{Name: "x", At: at(1000)}}
	assert.Equal(t, []change{{at(1000).UTC(), "x", operator.Free, gone, model.JSONOf(lost)}}, inUTC(s.next(nil, nil, at(1000))))
}

// Members are told of like locks, with the times of their terms.
func TestAChangeOfAMemberSaysWhenItHappened(t *testing.T) {
	m := commandtest.MemberOf(1, "m", at(100), at(103))
	m.LeaseRecord.ID, m.LeaseRecord.Value = "m", "here"
	leaving, late, left := m, m, commandtest.FreeSince(m.Name, at(106))
	leaving.Writer, leaving.At = "", at(105)
	late.At = at(200)
	var s story
	for i, step := range []struct {
		l     operator.Listing
		at    float64
		state operator.State
		text  string
	}{
		{m, 100, operator.Held, "joined by m, token 100000000, value here"}, {late, 113, operator.Expired, "expired, 10s after the last heartbeat of m"},
		{m, 103, operator.Held, "heard from again: m"}, {leaving, 105, operator.Leaving, "m is leaving"}, {left, 106, operator.Released, "left by m"},
	} {
		_, groups := model.Gather([]operator.Listing{step.l}, "")
		assert.Equal(t, []change{{at(step.at).UTC(), m.Name, step.state, step.text, model.JSONOf(step.l)}}, inUTC(s.next(nil, groups, at(1000))), "step %d", i)
	}
}

// The partitions that move from one member to another are counted, with the time of the last of them and the number of
// those that have no holder now, in the words for people and in the object for programs.
func TestAMoveSaysWhenItsLastPartitionMoved(t *testing.T) {
	a, b := commandtest.MemberOf(0, "a", at(90), at(200)), commandtest.MemberOf(1, "b", at(91), at(200))
	free := func(name string, since float64) operator.Listing {
		l := commandtest.FreeSince(table.PartitionName("orders", name), at(since))
		l.At = at(200)
		return l
	}
	with := func(m operator.Listing, name string, token float64) operator.Listing {
		return commandtest.PartitionWith(m, name, at(token))
	}
	paused := free("4", 150)
	paused.Paused, paused.Member = true, table.LeaseRef{Name: a.Name, Token: a.Token}
	var s story
	tell := func(found ...operator.Listing) (told []change) {
		_, groups := model.Gather(append([]operator.Listing{a, b}, found...), "")
		for _, c := range inUTC(s.next(nil, groups, at(1000))) {
			if c.Name == "orders/" {
				told = append(told, c)
			}
		}
		return told
	}
	moved := func(when float64, state operator.State, text string, n int, from, to string, without int) change {
		return change{at(when).UTC(), "orders/", state, text, MoveJSON{"orders/", state, "orders", n, from, to, without, at(when).UTC()}}
	}
	assert.Equal(t, []change{moved(200, model.Partial, "1 partition without a holder", 1, "", "", 1), moved(104, model.Partial, "4 partitions held by a", 4, "", "a", 1)},
		tell(with(a, "1", 101), with(a, "2", 104), with(a, "3", 102), with(a, "4", 103), free("5", 90)))
	assert.Equal(t, []change{moved(113, operator.Held, "1 partition held by b", 1, "", "b", 0), moved(200, operator.Held, "1 partition without a holder, last held by a", 1, "a", "", 0), moved(119, operator.Held, "3 partitions moved from a to b", 3, "a", "b", 0)},
		tell(with(b, "1", 112), with(b, "2", 119), with(b, "3", 115), paused, with(b, "5", 113)))
	assert.Empty(t, tell(with(b, "1", 112), with(b, "2", 119), with(b, "3", 115), paused, with(b, "5", 113)))
	assert.Equal(t, []change{moved(122, model.Partial, "1 partition taken again by a", 1, "a", "a", 1), moved(200, model.Partial, "1 partition without a holder, last held by b", 1, "b", "", 1), moved(125, model.Partial, "1 partition moved from b to a", 1, "b", "a", 1), moved(124, model.Partial, "1 partition taken again by b", 1, "b", "b", 1)},
		tell(with(a, "1", 125), with(b, "2", 124), free("3", 123), with(a, "4", 122), with(b, "5", 113)))
	assert.Equal(t, []change{moved(130, operator.Held, "1 partition moved from b to a", 1, "b", "a", 0)},
		tell(with(a, "1", 125), with(b, "2", 124), with(a, "3", 130), with(a, "4", 122), with(b, "5", 113)))
}

// A member whose heartbeat arrives late has its partitions again. Watch says when it saw that, and not when the member first got them,
// because a line must not be older than the one before it.
func TestPartitionsOfAMemberThatIsHeardFromAgainMoveWhenThatIsSeen(t *testing.T) {
	var s story
	for i, step := range []struct {
		heartbeat, seen, at float64
		text                string
	}{
		{103, 104, 102, "1 partition held by b"},
		{103, 114, 114, "1 partition without a holder, last held by b"},
		{112, 115, 115, "1 partition taken again by b"},
	} {
		b := commandtest.MemberOf(1, "b", at(101), at(step.heartbeat))
		p := commandtest.PartitionWith(b, "7", at(102))
		b.At, p.At = at(step.seen), at(step.seen)
		_, groups := model.Gather([]operator.Listing{b, p}, "")
		told := inUTC(s.next(nil, groups, at(1000)))
		last := told[len(told)-1]
		assert.Equal(t, step.text, last.Text, "step %d", i)
		assert.Equal(t, at(step.at).UTC(), last.At, "step %d", i)
	}
}

// Whatever happens to partitions between reads, watch tells of each one that has a new term, or none any more, exactly
// once, and names the member that had it last: compared with the terms of each partition, for random histories.
func TestEachMoveOfAPartitionIsCountedOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	members := []operator.Listing{commandtest.MemberOf(0, "a", at(10), at(900)), commandtest.MemberOf(1, "b", at(11), at(900)), commandtest.MemberOf(2, "c", at(12), at(900))}
	const partitions = 6
	for range 200 {
		var s story
		var now [partitions]operator.Listing
		holder, had := [partitions]string{}, [partitions]string{}
		for step := range 10 {
			want := map[move]int{}
			for i := range now {
				name := fmt.Sprint(i)
				switch random.IntN(3) {
				case 0:
					m := members[random.IntN(3)]
					now[i] = commandtest.PartitionWith(m, name, at(float64(100+step)))
					want[move{had[i], m.Writer}]++
					holder[i], had[i] = m.Writer, m.Writer
				case 1:
					if step == 0 || holder[i] != "" {
						want[move{had[i], ""}]++
					}
					now[i], holder[i] = commandtest.FreeSince(table.PartitionName("orders", name), at(float64(100+step))), ""
				default:
					if step == 0 {
						now[i] = commandtest.FreeSince(table.PartitionName("orders", name), at(50))
						want[move{}]++
					}
				}
			}
			_, groups := model.Gather(slices.Concat(members, now[:]), "")
			got := map[move]int{}
			for _, c := range s.next(nil, groups, at(1000)) {
				if j, ok := c.JSON.(MoveJSON); ok {
					got[move{j.From, j.To}] = j.Moved
				}
			}
			assert.Equal(t, want, got)
		}
	}
}

// Watch says of each part of a group what it is: a slot that was used between two reads was left by nobody whom it has seen, a
// partition that is watched by its name is no member, and only a member that had expired is heard from again. Work that was
// done under a lock whose row is gone is news.
func TestWatchTakesNoPartForAnother(t *testing.T) {
	m := commandtest.MemberOf(1, "m", at(100), at(103))
	m.LeaseRecord.ID = "m"
	leaving, slot, later := m, commandtest.FreeSince(m.Name, at(50)), commandtest.FreeSince(m.Name, at(90))
	expired, next := m, commandtest.MemberOf(1, "n", at(190), at(200))
	leaving.Writer, expired.At = "", at(150)
	p := commandtest.PartitionWith(m, "17", at(104))
	pLeaving, pFree := commandtest.PartitionWith(leaving, "17", at(104)), commandtest.FreeSince(p.Name, at(110))
	done := operator.Listing{Observation: table.Observation{Name: "x", At: at(200)}, Done: table.Done{Due: table.Due{Key: "7"}, By: "w", At: at(190)}}
	for i, c := range []struct {
		prefix string
		seen   []operator.Listing
		want   []string
	}{
		{"", []operator.Listing{slot, later}, []string{"released"}},
		{"", []operator.Listing{slot, m}, []string{"joined by m, token 100000000"}},
		{"", []operator.Listing{expired, next}, []string{"expired, 10s after the last heartbeat of m", "joined by n, token 190000000"}},
		{p.Name, []operator.Listing{p, pLeaving, pFree, p}, []string{"held by m, token 104000000", "leaving: m will release the lock once its work has ended", "released", "held by m, token 104000000"}},
		{"", []operator.Listing{{Observation: table.Observation{Name: "other", At: at(100)}}, done}, []string{"free: it was never claimed, or its row was pruned", "free; last done: 7, 10s ago, by w"}},
	} {
		var s story
		var told []string
		for _, l := range c.seen {
			locks, groups := model.Gather([]operator.Listing{l}, c.prefix)
			for _, change := range s.next(locks, groups, at(300)) {
				told = append(told, change.Text)
			}
		}
		assert.Equal(t, c.want, told, "case %d", i)
	}
}
