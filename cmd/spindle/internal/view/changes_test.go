package view

import (
	"fmt"
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
