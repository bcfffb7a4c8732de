package model

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

func TestAGroupIsOneEntryAndTheWorstOfItsLocksIsItsState(t *testing.T) {
	a, b := commandtest.MemberOf(0, "a", commandtest.At(100), commandtest.At(103)), commandtest.MemberOf(2, "b", commandtest.At(101), commandtest.At(102))
	b.At = commandtest.At(103)
	free := commandtest.FreeSince(table.PartitionName("orders", "free"), commandtest.At(103))
	paused := commandtest.FreeSince(table.PartitionName("orders", "paused"), commandtest.At(103))
	paused.Paused, paused.Member = true, table.LeaseRef{Name: a.Name, Token: a.Token}
	silent := commandtest.MemberOf(1, "c", commandtest.At(50), commandtest.At(60))
	silent.At = commandtest.At(103)
	orphan := operator.Listing{Observation: table.Observation{Name: table.PartitionName("orders", "orphan"), At: commandtest.At(103)}, Adrift: true}
	foreign := commandtest.Held(table.SlotName("orders", 9), "no member", commandtest.At(100), commandtest.At(103), commandtest.Lease)
	foreignPartition := commandtest.Held(table.PartitionName("orders", "plain"), "no member", commandtest.At(100), commandtest.At(103), commandtest.Lease)
	of := func(prefix string, found ...operator.Listing) (locks []string, sums []string) {
		l, groups := Gather(found, prefix)
		for _, lock := range l {
			locks = append(locks, lock.Name)
		}
		for _, g := range groups {
			sums = append(sums, fmt.Sprintf("%s %s %s", g.JSON.Name, g.JSON.State, g.Sum()))
		}
		return locks, sums
	}
	p10, p9 := commandtest.PartitionWith(a, "10", commandtest.At(101)), commandtest.PartitionWith(b, "9", commandtest.At(102))
	for want, found := range map[string][]operator.Listing{
		"orders/ held 2 members, 2 partitions":                                         {a, b, p10, p9},
		"orders/ partial 2 members, 3 partitions, 1 without a holder":                  {a, b, p10, p9, free},
		"orders/ partial 1 member, 2 partitions, 1 without a holder, 1 member expired": {a, silent, p10, commandtest.PartitionWith(silent, "9", commandtest.At(55))},
		"orders/ expired 0 members, 1 partition, 1 without a holder, 1 member expired": {silent, commandtest.PartitionWith(silent, "9", commandtest.At(55))},
		"orders/ orphaned 2 members, 3 partitions, 1 without a holder":                 {a, b, p10, p9, orphan},
		"orders/ released 0 members, 1 partition, 1 without a holder":                  {commandtest.FreeSince(a.Name, commandtest.At(103)), free},
		"orders/ held 2 members, 3 partitions, 1 paused":                               {a, b, p10, p9, paused},
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

	_, groups := Gather([]operator.Listing{a, b, p10, p9}, "")
	e := groups[0].Entry()
	assert.Equal(t, []string{"orders/", "held", "-", "3.0s", "1.0s", "10s"}, e.Cells, "as old as its oldest member, as late as its latest")
	assert.Equal(t, "9", groups[0].PartitionEntries()[0].Cells[0], "9 before 10")
}

func TestAGroupIsNamedAsItIsOrAsLsShowsIt(t *testing.T) {
	for arg, want := range map[string]string{"orders": "orders", "orders/": "orders", "a%2Fb/": "a/b", "a%2Fb": "a%2Fb", "a b/": "a b"} {
		name, err := GroupNamed(arg)
		assert.NoError(t, err)
		assert.Equal(t, want, name)
	}
	_, err := GroupNamed("")
	assert.Error(t, err)
}

func TestAPartitionThatNobodyHasSaysWhy(t *testing.T) {
	m := table.LeaseRef{Name: "orders/member/0003", Token: 7}
	over, adrift := commandtest.FreeSince("orders/partition/17", commandtest.At(100)), commandtest.Held("orders/partition/17", "", commandtest.At(90), commandtest.At(100), commandtest.Lease)
	over.Member, over.At = m, commandtest.At(103)
	adrift.Member, adrift.Adrift = m, true
	assert.Equal(t, "orders/partition/17 is free: the member that held it, orders/member/0003, ended its term at least 3.0s ago", Sentence(over))
	assert.Contains(t, Sentence(adrift), "the lock row of its member, orders/member/0003, was deleted")
}
