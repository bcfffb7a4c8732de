package plan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// memberSets returns all sets of up to three members, each of weight 1 or 2, on trial or not.
func memberSets(l List) [][]Member {
	sets := [][]Member{nil}
	for slot := range 3 {
		for _, set := range sets {
			for kind := range 4 {
				m := in(l, slot)[0]
				m.Weight, m.Trial = 1+kind%2, kind >= 2
				sets = append(sets, append(set[:len(set):len(set)], m))
			}
		}
	}
	return sets
}

// Every plan that a group of up to three members and four partitions can ever have, by any sequence of joins, leaves, trials
// and changes of weights, keeps the rules. The search ends by itself, once it finds no new plan.
func TestEveryReachablePlanKeepsTheRules(t *testing.T) {
	most := 4
	if fleet.Brief() {
		most = 3
	}
	for partitions := range most + 1 {
		l := NewList(names("p", 0, partitions))
		sets := memberSets(l)
		known, todo, steps := map[string]bool{"": true}, []*Plan{nil}, 0
		for len(todo) > 0 {
			p := todo[0]
			todo = todo[1:]
			for _, members := range sets {
				q := next(t, p, l, members)
				steps++
				keepsTheRules(t, p, q, l, members)
				text := q.Encode()
				if known[text] {
					continue
				}
				known[text] = true
				todo = append(todo, q)
				require.True(t, q.Same(next(t, q, l, members)), "nothing changes by itself: %v", members)
				again, err := Decode(text, l)
				require.NoError(t, err)
				require.True(t, q.Same(again), "what is published is the plan: %v", members)
			}
		}
		t.Logf("%d partitions: %d plans, %d steps", partitions, len(known)-1, steps)
	}
}

func keepsTheRules(t *testing.T, p, q *Plan, l List, members []Member) {
	t.Helper()
	before, after := assignments(t, p, l), assignments(t, q, l)
	if len(members) == 0 {
		return
	}
	holds := func(ok bool, what string) { // require would take too long for so many plans
		if !ok {
			t.Helper()
			require.Fail(t, what, "%v after %v, %v", after, before, members)
		}
	}
	had, held := count(before), count(after)
	holds(held[-1] == 0, "without a member")
	one, rest, n, sum := limited(len(after), members)
	for _, m := range one {
		holds(held[m.Slot] == 1, "a member on trial")
	}
	least, most := func(m Member) int { return n * m.Weight / sum }, func(m Member) int { return (n*m.Weight + sum - 1) / sum }
	for _, m := range rest {
		holds(least(m) <= held[m.Slot] && held[m.Slot] <= most(m), "a share")
		for _, o := range rest {
			if keeps := had[m.Slot] > least(m) && had[o.Slot] <= least(o); m.Trial && !o.Trial && held[m.Slot] > least(m) && !keeps {
				holds(held[o.Slot] == most(o), "a remainder is for a member on trial")
			}
		}
	}
	holds(bound(before, members) == moved(before, after), "the fewest move")
}

// The same is true for larger groups, of which some are drawn at random.
func TestLargerPlansKeepTheRules(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 40 {
		l := NewList(names("p", 0, 1+r.IntN(400)))
		p, members := (*Plan)(nil), in(l, 0)
		for range 20 {
			members = slices.DeleteFunc(slices.Clone(members), func(Member) bool { return r.IntN(5) == 0 })
			for range 1 + r.IntN(1+len(members)/2) {
				m := in(l, r.IntN(40))[0]
				m.Weight, m.Trial = 1+r.IntN(4), r.IntN(4) == 0
				members = slices.DeleteFunc(members, func(o Member) bool { return o.Slot == m.Slot })
				members = append(members, m)
			}
			q := next(t, p, l, members)
			keepsTheRules(t, p, q, l, members)
			require.True(t, q.Same(next(t, q, l, members)), "nothing changes by itself: %v", members)
			p = q
		}
	}
}
