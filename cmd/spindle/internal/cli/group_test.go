package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	groups "github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/table"
)

const theLease = 10 * time.Second

// memberOf is a member of the group "orders" in a slot.
func memberOf(slot int, id string, token, heartbeat time.Time) table.Listing {
	l := held(table.SlotName("orders", slot), id, token, heartbeat, theLease)
	l.LeaseRecord.ListDigest = "p"
	return l
}

// partitionWith is a partition that is held with a member.
func partitionWith(m table.Listing, partition string, token time.Time) table.Listing {
	l := m
	l.Name, l.Token, l.Member = table.PartitionName("orders", partition), table.TokenAt(token), table.LeaseRef{Name: m.Name, Token: m.Token}
	return l
}

// freeSince is a lock that was released.
func freeSince(name string, released time.Time) table.Listing {
	return table.Listing{Observation: table.Observation{Name: name, At: released, Exists: true, Token: table.TokenAt(released)}}
}

func TestAGroupIsOneEntryAndTheWorstOfItsLocksIsItsState(t *testing.T) {
	a, b := memberOf(0, "a", at(100), at(103)), memberOf(2, "b", at(101), at(102))
	b.At = at(103)
	free := freeSince(table.PartitionName("orders", "free"), at(103))
	silent := memberOf(1, "c", at(50), at(60))
	silent.At = at(103)
	orphan := table.Listing{Observation: table.Observation{Name: table.PartitionName("orders", "orphan"), At: at(103)}, Adrift: true}
	foreign := held(table.SlotName("orders", 9), "no member", at(100), at(103), theLease)
	foreignPartition := held(table.PartitionName("orders", "plain"), "no member", at(100), at(103), theLease)
	of := func(prefix string, found ...table.Listing) (locks []string, sums []string) {
		l, groups := gather(found, prefix)
		for _, lock := range l {
			locks = append(locks, lock.Name)
		}
		for _, g := range groups {
			sums = append(sums, fmt.Sprintf("%s %s %s", g.prefix, g.state(), g.sum()))
		}
		return locks, sums
	}
	p10, p9 := partitionWith(a, "10", at(101)), partitionWith(b, "9", at(102))
	for want, found := range map[string][]table.Listing{
		"orders/ held 2 members, 2 partitions":                                         {a, b, p10, p9},
		"orders/ partial 2 members, 3 partitions, 1 without a holder":                  {a, b, p10, p9, free},
		"orders/ partial 1 member, 2 partitions, 1 without a holder, 1 member expired": {a, silent, p10, partitionWith(silent, "9", at(55))},
		"orders/ expired 0 members, 1 partition, 1 without a holder, 1 member expired": {silent, partitionWith(silent, "9", at(55))},
		"orders/ orphaned 2 members, 3 partitions, 1 without a holder":                 {a, b, p10, p9, orphan},
		"orders/ released 0 members, 1 partition, 1 without a holder":                  {freeSince(a.Name, at(103)), free},
		"orders/ held 1 member, 0 partitions":                                          {a},
	} {
		for _, prefix := range []string{"", "ord", "orders/"} {
			locks, sums := of(prefix, found...)
			assert.Empty(t, locks)
			assert.Equal(t, []string{want}, sums)
		}
		locks, sums := of("orders/p", found...)
		assert.Len(t, locks, len(found), "a prefix of what is in it opens it")
		assert.Empty(t, sums)
	}
	locks, sums := of("", a, foreign, p10, foreignPartition)
	assert.Equal(t, []string{foreign.Name, foreignPartition.Name}, locks, "they only have such names")
	assert.Equal(t, []string{"orders/ held 1 member, 1 partition"}, sums)

	_, groups := gather([]table.Listing{a, b, p10, p9}, "")
	e := groups[0].entry()
	assert.Equal(t, []string{"orders/", "held", "-", "3.0s", "1.0s", "10s"}, e.cells, "as old as its oldest member, as late as its latest")
	assert.Equal(t, "9", groups[0].partitionEntries()[0].cells[0], "9 before 10")
}

func TestMovesAreTheNumberOfPartitions(t *testing.T) {
	var s story
	a, b := memberOf(0, "a", at(100), at(103)), memberOf(1, "b", at(101), at(103))
	texts := func(all ...table.Listing) (texts []string) {
		_, groups := gather(all, "")
		for _, c := range s.next(look{groups: groups, at: at(200)}) {
			texts = append(texts, c.Name+" "+c.Text)
		}
		return texts
	}
	of := func(m table.Listing, token int, from, to int) (all []table.Listing) {
		for i := from; i < to; i++ {
			all = append(all, partitionWith(m, fmt.Sprint(i), at(float64(token))))
		}
		return all
	}
	all := func(members []table.Listing, more ...[]table.Listing) []table.Listing {
		for _, m := range more {
			members = append(members, m...)
		}
		return members
	}
	assert.Equal(t, []string{"orders/member/0000 joined by a, token 100000000", "orders/ 10 partitions held by a"},
		texts(all([]table.Listing{a}, of(a, 102, 0, 10))...))
	assert.Empty(t, texts(all([]table.Listing{a}, of(a, 102, 0, 10))...))
	assert.Equal(t, []string{"orders/member/0001 joined by b, token 101000000", "orders/ 4 partitions moved from a to b"},
		texts(all([]table.Listing{a, b}, of(b, 110, 0, 4), of(a, 102, 4, 10))...))
	var given []table.Listing
	for i := range 3 {
		given = append(given, freeSince(table.PartitionName("orders", fmt.Sprint(i)), at(120)))
	}
	assert.Equal(t, []string{"orders/ 3 partitions of b without a holder"},
		texts(all([]table.Listing{a, b}, given, of(b, 110, 3, 4), of(a, 102, 4, 10))...))
	assert.Equal(t, []string{"orders/ 2 partitions moved from b to a", "orders/ 1 partition taken again by b"},
		texts(all([]table.Listing{a, b}, of(a, 130, 0, 2), of(b, 131, 2, 3), of(b, 110, 3, 4), of(a, 102, 4, 10))...), "a look between a give and a take loses nothing")
	left := freeSince(b.Name, at(104))
	assert.Equal(t, []string{"orders/member/0001 left by b", "orders/ 2 partitions moved from b to a"},
		texts(all([]table.Listing{a, left}, of(a, 130, 0, 2), of(a, 141, 2, 4), of(a, 102, 4, 10))...))
	assert.Empty(t, s.next(look{groups: func() []*group {
		_, g := gather(all([]table.Listing{a, left}, of(a, 130, 0, 2), of(a, 141, 2, 4), of(a, 102, 4, 10)), "")
		return g
	}(), at: at(201)}))
}

// A member that was killed did not leave: nobody should look for who stopped it.
func TestAMemberThatWasBuriedDidNotLeave(t *testing.T) {
	for _, c := range []struct {
		seen, over float64 // its last heartbeat was at 103
		want       string
	}{
		{103.5, 104, "left by b"},
		{112.5, 112.9, "left by b"},
		{112.5, 113.01, "over: b was not heard from for its lease of 10s"},
		{114, 130, "over: b was not heard from for its lease of 10s"},
		{104, 120, "over: b left, or was not heard from for its lease of 10s"},
	} {
		var s story
		look := func(l table.Listing) []change {
			_, groups := gather([]table.Listing{l}, "")
			return s.next(look{groups: groups, at: l.At})
		}
		b := memberOf(1, "b", at(101), at(103))
		b.At = at(c.seen)
		look(b)
		told := look(freeSince(b.Name, at(c.over)))
		b.LeaseRecord = nil
		look(b)
		assert.Equal(t, "left by b", look(freeSince(b.Name, at(c.over)))[0].Text, "a claim that was withdrawn")
		assert.Equal(t, []string{c.want}, []string{told[0].Text}, "%+v", c)
		assert.Equal(t, at(c.over).UTC(), told[0].At.UTC())
	}
}

// A look between the claim and its confirmation shows neither a member nor one that was silent.
func TestAMemberWhoseClaimWasSeenHasJoined(t *testing.T) {
	var s story
	var told []string
	for _, heartbeat := range []float64{101, 102} {
		b := memberOf(1, "b", at(101), at(heartbeat))
		b.At = at(heartbeat)
		if heartbeat == 101 {
			b.LeaseRecord = nil
		}
		_, groups := gather([]table.Listing{b}, "")
		for _, c := range s.next(look{groups: groups, at: b.At}) {
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
		b := memberOf(1, "b", at(101), at(heartbeat))
		b.At = at(103 + 12*float64(len(told)))
		_, groups := gather([]table.Listing{b}, "")
		for _, c := range s.next(look{groups: groups, at: b.At}) {
			told = append(told, c.Text)
		}
	}
	assert.Equal(t, []string{"joined by b, token 101000000", "expired, 10s after the last heartbeat of b", "heard from again: b"}, told)
}

func TestASlotThatWasInUseOnceIsNoNews(t *testing.T) {
	var s story
	_, groups := gather([]table.Listing{memberOf(0, "a", at(100), at(103)), freeSince(table.SlotName("orders", 1), at(50))}, "")
	assert.Len(t, s.next(look{groups: groups, at: at(103)}), 1)
}

// A group is one row, and its members and partitions are what Enter shows. They are rows if only the group is watched.
func TestAGroupOnTheScreenIsOneRow(t *testing.T) {
	a, b := memberOf(0, "a", at(100), at(103)), memberOf(1, "b", at(101), at(98))
	b.At = at(103)
	_, groups := gather([]table.Listing{a, b, memberOf(2, "", at(50), time.Time{}), partitionWith(a, "17", at(102)), freeSince("orders/partition/18", at(102))}, "")
	all := (&screen{watching: &watching{}}).rows(look{groups: groups})
	require.Len(t, all, 1)
	assert.Equal(t, partial, all[0].State)
	assert.Equal(t, "2 members, 2 partitions, 1 without a holder", all[0].Note)
	text := all[0].Detail(80)
	assert.Contains(t, text, "orders/ is partial: 2 members, 2 partitions, 1 without a holder\n\nSLOT ")
	assert.Regexp(t, "\n0000 +held .* 1 +a\n  17\n", text)
	assert.Regexp(t, "\n18 +released", text)
	only := (&screen{watching: &watching{group: "orders"}}).rows(look{groups: groups})
	assert.Len(t, only, 3)
	assert.Equal(t, "orders/member/0000", only[1].Name)
}

func TestAPartitionThatNobodyHasSaysWhy(t *testing.T) {
	m := table.LeaseRef{Name: "orders/member/0003", Token: 7}
	over, adrift := freeSince("orders/partition/17", at(100)), held("orders/partition/17", "", at(90), at(100), theLease)
	over.Member, over.At = m, at(103)
	adrift.Member, adrift.Adrift = m, true
	assert.Equal(t, "orders/partition/17 is free: the term of its member, orders/member/0003, ended at least 3.0s ago", sentence(over))
	assert.Contains(t, sentence(adrift), "somebody deleted the row of its member, orders/member/0003")
	assert.ErrorContains(t, breakable(over, 7), "nothing was released: orders/partition/17 is free")
	assert.ErrorContains(t, breakable(adrift, 7), "spindle release orders/member/0003 --token 7")
}

func TestMembersSayWhatNobodyHasAndWhoGoesByAnotherList(t *testing.T) {
	var b bytes.Buffer
	member := func(slot int, list string, partitions ...string) groups.Member {
		return groups.Member{ID: fmt.Sprintf("web-%d", slot), Slot: slot, Token: 1763645616123456, Since: at(100), Heartbeat: at(102), Lease: theLease, List: list, Partitions: partitions}
	}
	v := groups.View{At: at(103), Members: []groups.Member{member(0, "x", "10", "9"), member(1, "y")}, Unassigned: []string{"a b", "7", "11"}}
	printMembers(&terminal{Writer: &b}, "orders", v, true)
	assert.Equal(t, `Group orders has 2 members and 5 partitions

SLOT  STATE  TOKEN             SINCE  BEAT  LEASE  HAS  LIST  ID AND VALUE
0000  held   1763645616123456  3.0s   1.0s  10s    2    A     web-0
  9, 10
0001  held   1763645616123456  3.0s   1.0s  10s    0    B     web-1

Nobody has 3 of the partitions: 7, 11, a b
`, b.String())
	b.Reset()
	printMembers(&terminal{Writer: &b, width: 60}, "orders", v, true)
	assert.Equal(t, 10, strings.Count(b.String(), "\n"))
	for line := range strings.Lines(b.String()) {
		assert.LessOrEqual(t, length(line), 61, line)
	}
}

func TestThousandsOfPartitionsThatNobodyHasAreNotNamedUnasked(t *testing.T) {
	var v groups.View
	for i := range 10_000 {
		v.Unassigned = append(v.Unassigned, fmt.Sprint(i))
	}
	for asked, lines := range map[bool]int{false: 5, true: 500} {
		var b bytes.Buffer
		printMembers(&terminal{Writer: &b}, "orders", v, asked)
		assert.InDelta(t, lines, strings.Count(b.String(), "\n"), 0.9*float64(lines))
		assert.Equal(t, asked, strings.Contains(b.String(), "9999"))
		assert.Equal(t, !asked, strings.Contains(strings.ReplaceAll(b.String(), "\n", " "), " 49 and 9950 more"))
	}
}

func TestAGroupIsNamedAsItIsOrAsLsShowsIt(t *testing.T) {
	for arg, want := range map[string]string{"orders": "orders", "orders/": "orders", "a%2Fb/": "a/b", "a%2Fb": "a%2Fb", "a b/": "a b"} {
		name, err := groupNamed(arg)
		assert.NoError(t, err)
		assert.Equal(t, want, name)
	}
	_, err := groupNamed("")
	assert.Error(t, err)
}
