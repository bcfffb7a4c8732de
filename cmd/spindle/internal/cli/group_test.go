package cli

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

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

func TestAGroupIsNamedAsItIsOrAsLsShowsIt(t *testing.T) {
	for arg, want := range map[string]string{"orders": "orders", "orders/": "orders", "a%2Fb/": "a/b", "a%2Fb": "a%2Fb", "a b/": "a b"} {
		name, err := groupNamed(arg)
		assert.NoError(t, err)
		assert.Equal(t, want, name)
	}
	_, err := groupNamed("")
	assert.Error(t, err)
}

func TestAPartitionThatNobodyHasSaysWhy(t *testing.T) {
	m := table.LeaseRef{Name: "orders/member/0003", Token: 7}
	over, adrift := freeSince("orders/partition/17", at(100)), held("orders/partition/17", "", at(90), at(100), theLease)
	over.Member, over.At = m, at(103)
	adrift.Member, adrift.Adrift = m, true
	assert.Equal(t, "orders/partition/17 is free: the term of its member, orders/member/0003, ended at least 3.0s ago", sentence(over))
	assert.Contains(t, sentence(adrift), "somebody deleted the row of its member, orders/member/0003")
}
