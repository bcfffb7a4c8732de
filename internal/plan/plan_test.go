package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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

// bound returns the minimum number of partitions that have to move if every share is the exact share rounded down or
// up.
func bound(before []int, members []Member) int {
	n, sum, stay := len(before), 0, 0
	for _, m := range members {
		sum += m.Weight
	}
	has, left, gain := count(before), n, 0
	for _, m := range members {
		q := n * m.Weight / sum
		left -= q
		stay += min(has[m.Slot], q)
		if has[m.Slot] > q && n*m.Weight%sum > 0 {
			gain++
		}
	}
	return n - stay - min(left, gain)
}

type scenario struct {
	kind  string
	slots func(m int, r *rand.Rand) [][]int // the members' slots, before and after each change
}

func without(slots []int, slot int) []int {
	return slices.DeleteFunc(slices.Clone(slots), func(s int) bool { return s == slot })
}

// highestFree returns the highest free slot below a used one, or the first slot above all used ones.
func highestFree(slots []int) int {
	top := slices.Max(slots)
	for s := top - 1; s >= 0; s-- {
		if !slices.Contains(slots, s) {
			return s
		}
	}
	return top + 1
}

func holes(m int, r *rand.Rand) []int { return r.Perm(2 * m)[:m] }

func oneOf(slots []int, r *rand.Rand) int { return slots[r.IntN(len(slots))] }

var scenarios = []scenario{
	{"leave", func(m int, r *rand.Rand) [][]int { return [][]int{upTo(m), without(upTo(m), r.IntN(m))} }},
	{"join", func(m int, r *rand.Rand) [][]int { return [][]int{upTo(m), upTo(m + 1)} }},
	{"leave, holes", func(m int, r *rand.Rand) [][]int {
		s := holes(m, r)
		return [][]int{s, without(s, oneOf(s, r))}
	}},
	{"join, holes", func(m int, r *rand.Rand) [][]int {
		s := holes(m, r)
		return [][]int{s, append(slices.Clone(s), highestFree(s))}
	}},
	{"fifth leaves at once", func(m int, r *rand.Rand) [][]int { return [][]int{upTo(m), r.Perm(m)[:m-max(m/5, 1)]} }},
	{"fifth joins at once, holes", func(m int, r *rand.Rand) [][]int {
		s := holes(m, r)
		more := slices.Clone(s)
		for range max(m/5, 1) {
			more = append(more, highestFree(more))
		}
		return [][]int{s, more}
	}},
	{"restart elsewhere", func(m int, r *rand.Rand) [][]int {
		s := r.Perm(2 * m)
		return [][]int{s[:m], append(slices.Clone(s[1:m]), s[m])}
	}},
	{"scale to half, one by one", func(m int, r *rand.Rand) [][]int {
		all := [][]int{upTo(m)}
		for _, x := range r.Perm(m)[:m/2] {
			all = append(all, without(all[len(all)-1], x))
		}
		return all
	}},
	{"rolling restart after it", func(m int, r *rand.Rand) [][]int {
		s := r.Perm(m)[:max(m/2, 2)]
		all := [][]int{s}
		for _, x := range s {
			left := without(all[len(all)-1], x)
			all = append(all, left, append(slices.Clone(left), highestFree(left)))
		}
		return all
	}},
	{"half leaves and comes back", func(m int, r *rand.Rand) [][]int { return [][]int{upTo(m), r.Perm(m)[:(m+1)/2], upTo(m)} }},
}

// Whatever members come and go, shares differ by at most one, and no partition moves that could stay.
func TestTheFewestPartitionsMove(t *testing.T) {
	for _, s := range scenarios {
		for _, size := range []struct{ m, n int }{{3, 16}, {3, 2}, {6, 60}, {10, 1000}, {20, 200}, {100, 1000}} {
			l := NewList(names("p", 0, size.n))
			r := rand.New(rand.NewPCG(uint64(size.m), 7))
			for range max(1, min(3, 60/size.m)) {
				var p *Plan
				var before []int
				for i, slots := range s.slots(size.m, r) {
					p = next(t, p, l, in(l, slots...))
					after := owners(t, p, l)
					for _, slot := range slots {
						c := count(after)[slot]
						require.True(t, c == size.n/len(slots) || c == (size.n-1)/len(slots)+1, "%s, %v: a share of %d", s.kind, size, c)
					}
					if i > 0 {
						require.Equal(t, bound(before, in(l, slots...)), moved(before, after), "%s, %v: change %d", s.kind, size, i)
					}
					require.True(t, p.Same(next(t, p, l, in(l, slots...))), "%s, %v: nothing changes by itself", s.kind, size)
					before = after
				}
			}
		}
	}
}

// A member's share corresponds to its weight, to within one partition, and the fewest partitions move.
func TestSharesAreInProportionToWeights(t *testing.T) {
	for _, size := range []struct{ m, n int }{{3, 16}, {10, 200}, {50, 1000}} {
		l := NewList(names("p", 0, size.n))
		r := rand.New(rand.NewPCG(7, uint64(size.m)))
		weigh := func(m Member) Member { m.Weight = 1 + r.IntN(4); return m }
		var members []Member
		for _, m := range in(l, upTo(size.m)...) {
			members = append(members, weigh(m))
		}
		p := next(t, nil, l, members)
		for i := range 60 {
			switch x := r.IntN(len(members)); {
			case i%10 == 9:
				members[x] = weigh(members[x])
			case i%2 == 1 && len(members) > 2:
				members = slices.Delete(slices.Clone(members), x, x+1)
			default:
				top := slices.MaxFunc(members, func(a, b Member) int { return a.Slot - b.Slot }).Slot
				members = append(members, weigh(in(l, top+1+r.IntN(4))[0]))
			}
			before := owners(t, p, l)
			p = next(t, p, l, members)
			after := owners(t, p, l)
			require.Equal(t, bound(before, members), moved(before, after), "change %d", i)
			sum := 0
			for _, m := range members {
				sum += m.Weight
			}
			for _, m := range members {
				require.InDelta(t, float64(size.n*m.Weight)/float64(sum), count(after)[m.Slot], 0.9999, "change %d, weight %d", i, m.Weight)
			}
			require.True(t, p.Same(next(t, p, l, members)))
		}
	}
}

// A share that is a whole number is exact, even for a member that has one partition more.
func TestAWholeShareIsExact(t *testing.T) {
	l := NewList(names("p", 0, 10))
	members := in(l, 0, 1, 2)
	members[0].Weight = 3
	p := next(t, nil, l, members)
	require.Len(t, p.Assigned(l, 0), 6)
	members[0].Weight = 2
	assert.Len(t, next(t, p, l, members).Assigned(l, 0), 5)
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

// If no owners are known, all partitions are assigned. If there are no members, no partition is.
func TestWithoutAPlanOrMembers(t *testing.T) {
	l := NewList(names("p", 0, 5))
	var p *Plan
	assert.Empty(t, p.Members())
	assert.Empty(t, p.Assigned(l, 0))
	assert.True(t, p.Same(nil))
	q := next(t, p, l, nil)
	assert.False(t, p.Same(q))
	assert.Empty(t, q.Assigned(l, 0))
	assert.Len(t, next(t, q, l, in(l, 3)).Assigned(l, 3), 5)
}
