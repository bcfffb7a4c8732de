package plan

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var now = time.Unix(1_700_000_000, 0)

func names(prefix string, from, to int) []string {
	var names []string
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// in returns members with the list, one in each slot.
func in(l List, slots ...int) []Member {
	var members []Member
	for _, slot := range slots {
		members = append(members, Member{Slot: slot, Token: int64(slot) + 100, List: l.Digest(), Weight: 1})
	}
	return members
}

func upTo(n int) []int {
	slots := make([]int, n)
	for i := range slots {
		slots[i] = i
	}
	return slots
}

func next(t testing.TB, p *Plan, l List, members []Member) *Plan {
	t.Helper()
	q, ok := p.Next(l, members, now)
	require.True(t, ok, "the plan can be followed")
	return q
}

// owners returns the owner of each name. It checks that each name has exactly one owner.
func owners(t testing.TB, p *Plan, l List) []int {
	t.Helper()
	owner := assignments(t, p, l)
	require.NotContains(t, owner, -1, "each name is assigned")
	return owner
}

// assignments returns the owner of each name, or -1. It checks that no name has two owners. A nil plan assigns nothing.
func assignments(t testing.TB, p *Plan, l List) []int {
	t.Helper()
	owner := slices.Repeat([]int{-1}, len(l.at))
	if p == nil {
		return owner
	}
	for _, m := range p.Members() {
		has := p.Assigned(l, m.Slot)
		require.True(t, slices.IsSorted(has))
		for _, i := range has {
			require.Equal(t, -1, owner[i], "name %d is assigned to one member", i)
			owner[i] = m.Slot
		}
	}
	return owner
}

func count(owner []int) map[int]int {
	count := map[int]int{}
	for _, slot := range owner {
		count[slot]++
	}
	return count
}

func moved(a, b []int) int {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// limited returns the members that get only one partition each, because they are on trial and others are not, and the rest. It also
// returns how many partitions are left for the rest, and the sum of the weights of the rest.
func limited(partitions int, members []Member) (one, rest []Member, left, sum int) {
	for _, m := range members {
		sum += m.Weight
	}
	rest, left = slices.Clone(members), partitions
	for slices.ContainsFunc(members, func(m Member) bool { return !m.Trial }) {
		i := slices.IndexFunc(rest, func(m Member) bool { return m.Trial && left*m.Weight >= sum })
		if i < 0 {
			break
		}
		one, left, sum = append(one, rest[i]), left-1, sum-rest[i].Weight
		rest = slices.Delete(rest, i, i+1)
	}
	return one, rest, left, sum
}

// bound returns the minimum number of partitions that have to move if each limited member gets one partition, and every
// other share is the exact share rounded down or up.
func bound(before []int, members []Member) int {
	one, rest, n, sum := limited(len(before), members)
	has, stay, left, gain := count(before), 0, n, 0
	for _, m := range one {
		stay += min(has[m.Slot], 1)
	}
	for _, m := range rest {
		q := n * m.Weight / sum
		left -= q
		stay += min(has[m.Slot], q)
		if has[m.Slot] > q && n*m.Weight%sum > 0 {
			gain++
		}
	}
	return len(before) - stay - min(left, gain)
}

// All members treat an invalid weight as the nearest valid one.
func TestWeightsHaveBounds(t *testing.T) {
	l := NewList(names("p", 0, 10))
	members := in(l, 0, 1)
	members[0].Weight, members[1].Weight = -3, 1<<30
	p := next(t, nil, l, members)
	assert.Equal(t, []int{1, 1 << 20}, []int{p.Members()[0].Weight, p.Members()[1].Weight})
	q, err := Decode(p.Encode(), l)
	require.NoError(t, err)
	assert.True(t, p.Same(q))
}

// Everything that affects the plans of other members is published.
func TestWhatIsPublished(t *testing.T) {
	plan := func(change func(*Plan)) *Plan {
		p := &Plan{
			members: []Member{{Slot: 1, Token: 5, List: "a", Weight: 1}, {Slot: 2, Token: 6, List: "b", Weight: 1}},
			lists:   []string{"a", "b"},
			entries: []entry{{hash: 7, lists: 3, owner: 0, former: "x"}, {hash: 8, lists: 3, owner: 1}},
			evicted: map[string]int64{"x": 1, "y": 2},
		}
		change(p)
		return p
	}
	p := plan(func(*Plan) {})
	assert.True(t, p.Same(plan(func(*Plan) {})))
	assert.True(t, p.Same(plan(func(p *Plan) { p.entries[0].former = "" })), "time has passed")
	for what, change := range map[string]func(*Plan){
		"slot":    func(p *Plan) { p.members[1].Slot++ },
		"token":   func(p *Plan) { p.members[1].Token++ },
		"list":    func(p *Plan) { p.members[1].List = "c" },
		"weight":  func(p *Plan) { p.members[1].Weight++ },
		"trial":   func(p *Plan) { p.members[1].Trial = true },
		"id":      func(p *Plan) { p.members[1].ID = "z" },
		"keep":    func(p *Plan) { p.members[1].Keep++ },
		"hash":    func(p *Plan) { p.entries[1].hash++ },
		"lists":   func(p *Plan) { p.entries[1].lists = 2 },
		"owner":   func(p *Plan) { p.entries[1].owner = 0 },
		"former":  func(p *Plan) { p.entries[0].former = "y" },
		"until":   func(p *Plan) { p.evicted["x"]++ },
		"entries": func(p *Plan) { p.entries = p.entries[:1] },
	} {
		assert.False(t, p.Same(plan(change)), what)
	}
}

// Members may read each other's rows in any order.
func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	l := NewList(names("p", 0, 100))
	p := next(t, nil, l, in(l, upTo(7)...))
	q := next(t, p, l, in(l, 1, 2, 4, 9, 12))
	assert.True(t, q.Same(next(t, p, l, in(l, 12, 4, 2, 9, 1))))
	assert.Equal(t, in(l, 1, 2, 4, 9, 12), next(t, p, l, in(l, 12, 4, 2, 9, 1)).Members())
}

// Members of different builds have to compute the same plan, so a change of the result requires a new version.
func TestThePlanIsTheSameInEveryBuildOfItsVersion(t *testing.T) {
	require.Equal(t, "3", version)
	sum := uint64(0)
	add := func(p *Plan, l List) {
		for _, slot := range owners(t, p, l) {
			sum = mix(sum ^ uint64(slot))
		}
	}
	for _, n := range []int{1, 7, 64, 1000, 20000} {
		l := NewList(names("p", 0, n))
		p := next(t, nil, l, in(l, upTo(50)...))
		add(p, l)
		p = next(t, p, l, in(l, 3, 9, 17, 25, 49))
		add(p, l)
		members := in(l, upTo(30)...)
		members[4].Weight, members[5].Trial = 3, true
		add(next(t, p, l, members), l)
	}
	assert.Equal(t, "3/59b271ae1bbcb1d3", NewList([]string{"b", "a"}).Digest())
	assert.Equal(t, uint64(0x16b3b6f5b2c46673), sum)
}

// Every byte of a name counts, in any script: names that share a hash are assigned together, and members of another build would
// plan otherwise. The hash function is part of the version.
func TestNamesOfAnyScriptAreToldApart(t *testing.T) {
	var names []string
	for r := rune(1); r < 0x20000; r += 7 {
		if utf8.ValidRune(r) {
			names = append(names, "a"+string(r)+"z")
		}
	}
	for _, name := range names {
		sum := fnv.New64a()
		sum.Write([]byte(name))
		require.Equal(t, mix(sum.Sum64()), hash(name), "%q", name)
	}
	assert.Len(t, NewList(names).hashes, len(names))
}

// A member may have its list in any order, because indexes refer to its own names.
func TestAListIsTheSameInAnyOrder(t *testing.T) {
	forwards, backwards := names("p", 0, 20), names("p", 0, 20)
	slices.Reverse(backwards)
	l, k := NewList(forwards), NewList(backwards)
	require.Equal(t, l.Digest(), k.Digest())
	require.NotEqual(t, l.Digest(), NewList(forwards[1:]).Digest())
	p := next(t, nil, l, in(l, 0, 1))
	var byL, byK []string
	for _, i := range p.Assigned(l, 1) {
		byL = append(byL, forwards[i])
	}
	for _, i := range p.Assigned(k, 1) {
		byK = append(byK, backwards[i])
	}
	assert.ElementsMatch(t, byL, byK)
	assert.Len(t, byL, 10)
}

// Two names with the same hash are assigned together and cause no errors.
func TestTwoNamesOfOneHashGoTogether(t *testing.T) {
	l := listOf("l", []uint64{7, 3, 7, 5})
	p, err := Decode(next(t, nil, l, in(l, 0, 1, 2)).Encode(), l)
	require.NoError(t, err)
	owner := owners(t, p, l)
	assert.Equal(t, owner[0], owner[2])
	assert.Len(t, count(owner), 3)
	shown := Of(l, in(l, 0, 1), func(i int) (int, bool) { return i / 2, true })
	assert.Equal(t, []int{0, 1, 2}, shown.Assigned(l, 0), "the first of them counts")
}

// The first plan of a group begins with the assignment that the rows of partitions show.
func TestTheFirstPlanKeepsWhatMembersHave(t *testing.T) {
	l := NewList(names("p", 0, 12))
	shown := func(i int) (int, bool) { return i % 4, i%4 != 2 } // slot 2 has nothing yet, slot 3 is not counted
	p := Of(l, in(l, 0, 1, 2), shown)
	assert.Equal(t, []int{0, 4, 8}, p.Assigned(l, 0))
	assert.Empty(t, p.Assigned(l, 3))
	owner := owners(t, next(t, p, l, in(l, 0, 1, 2)), l)
	for i, slot := range owner {
		if i%4 < 2 {
			assert.Equal(t, i%4, slot, "who has it keeps it")
		}
	}
	assert.False(t, p.Same(next(t, p, l, in(l, 0, 1, 2))), "the first plan is published")
}

func TestTheFirstPlanKeepsWhatMembersOfAnotherListHave(t *testing.T) {
	a, b := NewList(names("p", 0, 10)), NewList(names("p", 0, 9))
	members := append(in(a, 0), in(b, 1)...)
	p := next(t, Of(b, members, func(i int) (int, bool) { return i % 2, i < 8 }), b, members)
	for i, slot := range owners(t, p, b)[:8] {
		assert.Equal(t, i%2, slot)
	}
}

// If there are more members than partitions, a member on trial still gets a partition. Otherwise its trial would never
// end.
func TestAMemberOnTrialIsNotASpareAsLongAsAnotherHasTwo(t *testing.T) {
	l := NewList(names("p", 0, 5))
	before := next(t, nil, l, in(l, upTo(4)...))
	members := in(l, upTo(6)...)
	members[4].Trial, members[5].Trial = true, true
	p := next(t, before, l, members)
	c := count(owners(t, p, l))
	assert.Equal(t, 1, c[4]+c[5], c)
	for slot := range 4 {
		assert.Equal(t, 1, c[slot], c)
	}
	assert.Equal(t, 1, moved(owners(t, before, l), owners(t, p, l)))
	assert.True(t, p.Same(next(t, p, l, members)))
}

// A member on trial has one partition at most, whatever the other members have.
func TestAMemberOnTrialHasOnePartition(t *testing.T) {
	l := NewList(names("p", 0, 60))
	members := in(l, upTo(6)...)
	members[2].Trial = true
	before := next(t, nil, l, in(l, upTo(6)...))
	p := next(t, before, l, members)
	c := count(owners(t, p, l))
	assert.Equal(t, 1, c[2])
	for slot, n := range c {
		assert.True(t, slot == 2 || n == 11 || n == 12, "the others have the rest: %v", c)
	}
	assert.Equal(t, 9, moved(owners(t, before, l), owners(t, p, l)), "only what it gives up moves")
	assert.True(t, p.Same(next(t, p, l, members)))

	for i := range members {
		members[i].Trial = true
	}
	members[2].Weight = 5
	assert.Len(t, next(t, p, l, members).Assigned(l, 2), 30, "if all are, all count as full")

	few := NewList(names("p", 0, 3))
	members = in(few, 0, 1, 2, 3)
	members[0].Trial = true
	assert.Empty(t, next(t, nil, few, members).Assigned(few, 0), "a remainder is not for a trial")
}

// The member in a slot gets the partitions that belong to the slot.
func TestWhoTakesASlotTakesItsPartitions(t *testing.T) {
	l := NewList(names("p", 0, 50))
	p := next(t, nil, l, in(l, 0, 1, 2))
	members := in(l, 0, 1, 2)
	members[1].Token = 999
	q := next(t, p, l, members)
	assert.Equal(t, owners(t, p, l), owners(t, q, l))
	assert.False(t, p.Same(q), "another term is published")
	assert.Equal(t, owners(t, p, l), owners(t, next(t, p, l, append(members, members[1])), l), "a slot given twice is one")
}
