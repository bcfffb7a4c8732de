package view

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

func TestMovesAreTheNumberOfPartitions(t *testing.T) {
	var s story
	a, b := commandtest.MemberOf(0, "a", commandtest.At(100), commandtest.At(103)), commandtest.MemberOf(1, "b", commandtest.At(101), commandtest.At(103))
	texts := func(all ...operator.Listing) (texts []string) {
		_, groups := model.Gather(all, "")
		for _, c := range s.next(nil, groups, commandtest.At(200)) {
			texts = append(texts, c.Name+" "+c.Text)
		}
		return texts
	}
	of := func(m operator.Listing, token int, from, to int) (all []operator.Listing) {
		for i := from; i < to; i++ {
			all = append(all, commandtest.PartitionWith(m, fmt.Sprint(i), commandtest.At(float64(token))))
		}
		return all
	}
	all := func(members []operator.Listing, more ...[]operator.Listing) []operator.Listing {
		for _, m := range more {
			members = append(members, m...)
		}
		return members
	}
	assert.Equal(t, []string{"orders/member/0000 joined by a, token 100000000", "orders/ 10 partitions held by a"},
		texts(all([]operator.Listing{a}, of(a, 102, 0, 10))...))
	assert.Empty(t, texts(all([]operator.Listing{a}, of(a, 102, 0, 10))...))
	assert.Equal(t, []string{"orders/member/0001 joined by b, token 101000000", "orders/ 4 partitions moved from a to b"},
		texts(all([]operator.Listing{a, b}, of(b, 110, 0, 4), of(a, 102, 4, 10))...))
	var given []operator.Listing
	for i := range 3 {
		given = append(given, commandtest.FreeSince(table.PartitionName("orders", fmt.Sprint(i)), commandtest.At(120)))
	}
	assert.Equal(t, []string{"orders/ 3 partitions without a holder, last held by b"},
		texts(all([]operator.Listing{a, b}, given, of(b, 110, 3, 4), of(a, 102, 4, 10))...))
	assert.Equal(t, []string{"orders/ 2 partitions moved from b to a", "orders/ 1 partition taken again by b"},
		texts(all([]operator.Listing{a, b}, of(a, 130, 0, 2), of(b, 131, 2, 3), of(b, 110, 3, 4), of(a, 102, 4, 10))...), "a look between a give and a take loses nothing")
	left := commandtest.FreeSince(b.Name, commandtest.At(104))
	assert.Equal(t, []string{"orders/member/0001 left by b", "orders/ 2 partitions moved from b to a"},
		texts(all([]operator.Listing{a, left}, of(a, 130, 0, 2), of(a, 141, 2, 4), of(a, 102, 4, 10))...))
	assert.Empty(t, texts(all([]operator.Listing{a, left}, of(a, 130, 0, 2), of(a, 141, 2, 4), of(a, 102, 4, 10))...))
}

// A killed member did not leave: nobody should look for a person who stopped it.
func TestAMemberThatWasBuriedDidNotLeave(t *testing.T) {
	for _, c := range []struct {
		seen, over float64 // its last heartbeat was at 103
		want       string
	}{
		{103.5, 104, "left by b"},
		{112.5, 112.9, "left by b"},
		{112.5, 113.01, "ended: b sent no heartbeat within its lease of 10s"},
		{114, 130, "ended: b sent no heartbeat within its lease of 10s"},
		{104, 120, "ended: b left, or sent no heartbeat within its lease of 10s"},
	} {
		var s story
		look := func(l operator.Listing) []change {
			_, groups := model.Gather([]operator.Listing{l}, "")
			return s.next(nil, groups, l.At)
		}
		b := commandtest.MemberOf(1, "b", commandtest.At(101), commandtest.At(103))
		b.At = commandtest.At(c.seen)
		look(b)
		told := look(commandtest.FreeSince(b.Name, commandtest.At(c.over)))
		b.LeaseRecord = nil
		look(b)
		assert.Equal(t, "left by b", look(commandtest.FreeSince(b.Name, commandtest.At(c.over)))[0].Text, "a claim that was withdrawn")
		assert.Equal(t, []string{c.want}, []string{told[0].Text}, "%+v", c)
		assert.Equal(t, commandtest.At(c.over).UTC(), told[0].At.UTC())
	}
}

// A look between the claim and its confirmation shows neither a member nor one that was silent.
func TestAMemberWhoseClaimWasSeenHasJoined(t *testing.T) {
	var s story
	var told []string
	for _, heartbeat := range []float64{101, 102} {
		b := commandtest.MemberOf(1, "b", commandtest.At(101), commandtest.At(heartbeat))
		b.At = commandtest.At(heartbeat)
		if heartbeat == 101 {
			b.LeaseRecord = nil
		}
		_, groups := model.Gather([]operator.Listing{b}, "")
		for _, c := range s.next(nil, groups, b.At) {
			told = append(told, c.Text)
		}
	}
	assert.Equal(t, []string{"claimed by b", "joined by b, token 101000000"}, told)
}

// A heartbeat that arrives late, before anybody has evicted its member, begins no term.
func TestAMemberThatIsHeardFromAgainHasNotJoined(t *testing.T) {
	var s story
	var told []string
	for _, heartbeat := range []float64{103, 103, 125} {
		b := commandtest.MemberOf(1, "b", commandtest.At(101), commandtest.At(heartbeat))
		b.At = commandtest.At(103 + 12*float64(len(told)))
		_, groups := model.Gather([]operator.Listing{b}, "")
		for _, c := range s.next(nil, groups, b.At) {
			told = append(told, c.Text)
		}
	}
	assert.Equal(t, []string{"joined by b, token 101000000", "expired, 10s after the last heartbeat of b", "heard from again: b"}, told)
}

func TestASlotThatWasInUseOnceIsNoNews(t *testing.T) {
	var s story
	_, groups := model.Gather([]operator.Listing{commandtest.MemberOf(0, "a", commandtest.At(100), commandtest.At(103)), commandtest.FreeSince(table.SlotName("orders", 1), commandtest.At(50))}, "")
	assert.Len(t, s.next(nil, groups, commandtest.At(103)), 1)
}
