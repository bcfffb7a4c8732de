package plan

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const keep = time.Minute

// pods returns members with an identity. Pod i is in slots[i], or does not exist if slots[i] is -1.
func pods(l List, slots ...int) []Member {
	var members []Member
	for i, slot := range slots {
		if slot >= 0 {
			m := in(l, slot)[0]
			m.ID, m.Keep = "pod-"+strconv.Itoa(i), keep
			members = append(members, m)
		}
	}
	return members
}

// has returns the partitions of each pod.
func has(p *Plan, l List, members []Member) map[string][]int {
	all := map[string][]int{}
	for _, m := range members {
		all[m.ID] = p.Assigned(l, m.Slot)
	}
	return all
}

func republished(t *testing.T, p *Plan, l List) *Plan {
	t.Helper()
	q, err := Decode(p.Encode(), l)
	require.NoError(t, err)
	require.True(t, p.Same(q) && q.Same(p), "the text says all of it")
	require.Equal(t, p, q)
	return q
}

// A StatefulSet's pods return in different slots, and each one gets the partitions that its volume contains. No other
// partition moves.
func TestAMemberThatIsBackHasItsOwn(t *testing.T) {
	l := NewList(names("p", 0, 60))
	all := pods(l, 0, 1, 2, 3, 4, 5)
	p := next(t, nil, l, all)
	own := has(p, l, all)

	left := pods(l, 0, -1, 2, -1, -1, 5)
	q := republished(t, next(t, p, l, left), l)
	assert.Equal(t, bound(owners(t, p, l), left), moved(owners(t, p, l), owners(t, q, l)), "leaving moves no more than it must")
	assert.True(t, q.Same(next(t, q, l, left)))

	back := pods(l, 0, 4, 2, 1, 7, 5)
	r := republished(t, next(t, q, l, back), l)
	assert.Equal(t, own, has(r, l, back))
	assert.Empty(t, r.evicted, "nothing is kept of who is back")
	assert.True(t, r.Same(next(t, r, l, back)))
}

// A new member in the slot of an evicted member has the slot's partitions until the evicted member returns.
func TestAStrangerInTheSlotIsNotTheMember(t *testing.T) {
	l := NewList(names("p", 0, 60))
	p := next(t, nil, l, pods(l, 0, 1, 2))
	own := p.Assigned(l, 1)
	stranger := append(pods(l, 0, -1, 2), in(l, 1)...)
	q := republished(t, next(t, p, l, stranger), l)
	assert.Equal(t, own, q.Assigned(l, 1), "entries stay in their slot")
	r := next(t, q, l, append(stranger, pods(l, -1, 5)...))
	assert.Len(t, r.Assigned(l, 1), 15)
	assert.Subset(t, slices.Concat(r.Assigned(l, 1), r.Assigned(l, 5)), own, "the stranger gives up only to the member")
}

// An identity is kept for a limited time, which begins when the member is evicted and not again with each plan.
func TestAMemoryExpires(t *testing.T) {
	l := NewList(names("p", 0, 60))
	p := next(t, nil, l, pods(l, 0, 1, 2, 3))
	left, back := pods(l, 0, -1, 2, 3), pods(l, 0, 9, 2, 3)
	p = next(t, p, l, left)

	q, _ := p.Next(l, left, now.Add(keep-time.Second))
	assert.NotEmpty(t, q.evicted)
	gone, _ := q.Next(l, left, now.Add(keep))
	assert.Empty(t, gone.evicted)
	assert.True(t, q.Same(gone) && gone.Same(q), "that time has passed is not published")

	in, _ := q.Next(l, back, now.Add(keep-time.Second))
	late, _ := q.Next(l, back, now.Add(keep))
	assert.NotEqual(t, in.Assigned(l, 9), late.Assigned(l, 9))
}

// Members without an identity leave nothing behind in the plan.
func TestWithoutAnIdentityNothingIsKept(t *testing.T) {
	l := NewList(names("p", 0, 60))
	p := next(t, nil, l, in(l, 0, 1, 2))
	assert.Empty(t, next(t, p, l, in(l, 0, 1)).evicted)
	members := pods(l, 0, 1, 2)
	for i := range members {
		members[i].Keep = 0
	}
	assert.Empty(t, next(t, next(t, p, l, members), l, members[:2]).evicted)
}

// If one member returns before the others, it gets as many of its own partitions as its share allows, and the fewest
// partitions move.
func TestOneIsBackBeforeTheOthers(t *testing.T) {
	l := NewList(names("p", 0, 60))
	all := pods(l, 0, 1, 2, 3, 4, 5)
	p := next(t, nil, l, all)
	own := has(p, l, all)
	p = next(t, p, l, pods(l, 0, 1, 2, -1, -1, -1))
	back := pods(l, 0, 1, 2, 8, -1, -1)
	q := next(t, p, l, back)
	assert.Equal(t, bound(owners(t, p, l), back), moved(owners(t, p, l), owners(t, q, l)))
	returned := func(slot int, p *Plan) (n int) {
		for _, i := range own["pod-3"] {
			if slices.Contains(p.Assigned(l, slot), i) {
				n++
			}
		}
		return n
	}
	most := 0
	for slot := range 3 {
		most += min(returned(slot, p), 5) // each of the others gives up 5 of its 20
		assert.Len(t, q.Assigned(l, slot), 15)
	}
	assert.Equal(t, most, returned(8, q), "as many of its own as the others give up")
	assert.NotContains(t, q.evicted, "pod-3")
}

// A former owner whose time is over does not hide the one that was evicted after it.
func TestAnExpiredMemoryDoesNotHideANewerOne(t *testing.T) {
	l := NewList(names("p", 0, 60))
	p := next(t, nil, l, pods(l, 0, 1, 2, 3))
	p = republished(t, next(t, p, l, pods(l, 0, -1, 2, 3)), l)
	own := p.Assigned(l, 2)
	p, _ = p.Next(l, pods(l, 0, -1, -1, 3), now.Add(keep+time.Second))
	p = republished(t, p, l)
	p, _ = p.Next(l, pods(l, 0, -1, 7, 3), now.Add(keep+2*time.Second))
	assert.Equal(t, own, p.Assigned(l, 7))
}

// A member that comes back, or moves, has the partitions that it had at first, whatever happened to its slot meanwhile.
func TestAMemberHasItsOwnWhereverItIs(t *testing.T) {
	l := NewList(names("p", 0, 60))
	for what, c := range map[string]struct {
		steps    [][]Member
		was, now []int // slots
	}{
		"others went as well":  {[][]Member{pods(l, 0, 1, 2, 3, 4, 5), pods(l, -1, 1, 2, 3, 4, 5), pods(l, -1, -1, 2, 3, 4, 5), pods(l, -1, -1, -1, 3, 4, 5), pods(l, 9, 8, 7, 3, 4, 5)}, []int{0, 1, 2, 3}, []int{9, 8, 7, 3}},
		"restarted":            {[][]Member{pods(l, 0, 1, 2, 3), pods(l, 1, 0, 2, 7)}, []int{0, 1, 2, 3}, []int{1, 0, 2, 7}},
		"before the other":     {[][]Member{pods(l, 0, 1, 2, 3), pods(l, -1, 0, 2, 3)}, []int{1}, []int{0}},
		"and then the other":   {[][]Member{pods(l, 0, 1, 2, 3), pods(l, -1, 0, 2, 3), pods(l, 4, 0, 2, 3)}, []int{0, 1, 2, 3}, []int{4, 0, 2, 3}},
		"in another's slot":    {[][]Member{pods(l, 0, 1, 2, 3), pods(l, 0, -1, 2, 3), append(pods(l, 0, 3, 2, -1), in(l, 5)...)}, []int{1}, []int{3}},
		"in a stranger's slot": {[][]Member{append(pods(l, 0, 1, 2), in(l, 3)...), pods(l, 0, 3, 2)}, []int{1}, []int{3}},
	} {
		first := next(t, nil, l, c.steps[0])
		p := first
		for _, members := range c.steps[1:] {
			p = republished(t, next(t, p, l, members), l)
		}
		for i, slot := range c.now {
			assert.Subset(t, p.Assigned(l, slot), first.Assigned(l, c.was[i]), what)
		}
	}
}
