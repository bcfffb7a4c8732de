package plan

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A crowd is a set of members with different lists. They learn about each other's lists only from the published text.
type crowd struct {
	*testing.T
	text  string
	lists map[int]List // by slot
	trial map[int]bool
	heavy map[int]int
}

func (c *crowd) members() []Member {
	var members []Member
	for slot, l := range c.lists {
		members = append(members, Member{Slot: slot, Token: 1, List: l.Digest(), Weight: 1 + c.heavy[slot], Trial: c.trial[slot]})
	}
	return members
}

// read returns the plan as the member in the slot knows it, and whether the member has a new plan to publish.
func (c *crowd) read(slot int) (p *Plan, publish bool) {
	c.Helper()
	l := c.lists[slot]
	var old *Plan
	if c.text != "" {
		var err error
		old, err = Decode(c.text, l)
		require.NoError(c, err)
	}
	p, ok := old.Next(l, c.members(), now)
	if !ok {
		return nil, false
	}
	return p, !old.Same(p)
}

// settle lets members publish until no member has a new plan.
func (c *crowd) settle() {
	c.Helper()
	for range 10 {
		calm := true
		for slot := range 100 {
			if _, here := c.lists[slot]; !here {
				continue
			}
			if p, publish := c.read(slot); publish {
				c.text, calm = p.Encode(), false
			}
		}
		if calm {
			return
		}
	}
	require.Fail(c, "members go on publishing")
}

// owners returns the owner of each name in all lists. It checks that all members agree, and that no member has more
// than its share of all names or, if that is larger, the names that only it can have.
func (c *crowd) owners(of map[string][]string) map[string]int {
	c.Helper()
	owner, can := map[string]int{}, map[string][]int{}
	for slot, l := range c.lists {
		p, publish := c.read(slot)
		require.NotNil(c, p, "everybody can read the plan")
		require.False(c, publish)
		for _, name := range of[l.Digest()] {
			can[name] = append(can[name], slot)
		}
		for other, k := range c.lists {
			for _, i := range p.Assigned(l, other) {
				name := of[l.Digest()][i]
				if was, ok := owner[name]; ok {
					require.Equal(c, was, other, "members agree about %s", name)
				}
				owner[name] = other
				require.Contains(c, of[k.Digest()], name, "a member has only names of its list")
			}
		}
	}
	only, load := map[int]int{}, map[int]int{}
	for name, slots := range can {
		require.Contains(c, owner, name, "each name is assigned")
		load[owner[name]]++
		if len(slots) == 1 {
			only[slots[0]]++
		}
	}
	for slot := range c.lists {
		require.LessOrEqual(c, load[slot], max((len(can)-1)/len(c.lists)+1, only[slot]), "slot %d: %v", slot, load)
	}
	return owner
}

func TestSeveralLists(t *testing.T) {
	base := names("p", 0, 60)
	kinds := map[string][]string{
		"A": base,
		"B": append(slices.Clone(base), "new"),
		"C": append(names("p", 0, 50), names("c", 0, 10)...),
		"D": append(names("d", 0, 30), names("p", 0, 30)...),
	}
	list, of := map[string]List{}, map[string][]string{}
	for kind, names := range kinds {
		list[kind] = NewList(names)
		of[list[kind].Digest()] = names
	}
	for _, test := range []struct {
		kind  string
		slots []int
		lists []string
	}{
		{"canary with a name more, the others restarted", []int{0, 1, 2, 3, 4, 5}, []string{"B", "A", "A", "A", "A", "A"}},
		{"canary with ten other names", []int{0}, []string{"C"}},
		{"rolling update with a name more", []int{0, 1, 2, 3, 4, 5}, []string{"B", "B", "B", "B", "B", "B"}},
		{"rolling update with half the names new", []int{0, 1, 2, 3, 4, 5}, []string{"D", "D", "D", "D", "D", "D"}},
		{"rolled back after four", []int{0, 1, 2, 3, 3, 2, 1, 0}, []string{"B", "B", "B", "B", "A", "A", "A", "A"}},
		{"three lists for ever", []int{0, 1, 2, 3}, []string{"B", "C", "A", "A"}},
	} {
		t.Run(test.kind, func(t *testing.T) {
			c := &crowd{T: t, lists: map[int]List{}}
			for slot := range 6 {
				c.lists[slot] = list["A"]
			}
			c.settle()
			before := c.owners(of)
			for i, slot := range test.slots {
				delete(c.lists, slot)
				c.settle()
				left := c.owners(of)
				for name, owner := range left {
					if was, ok := before[name]; ok && was != slot && len(c.lists) == 5 && test.kind == "canary with ten other names" {
						assert.Equal(t, was, owner, "what others have, they keep")
					}
				}
				c.lists[slot] = list[test.lists[i]]
				c.settle()
				before = c.owners(of)
			}
		})
	}
}

// Names that are not in the list of any counted member are dropped.
func TestNamesOfNobodyAreDropped(t *testing.T) {
	a, b := NewList(names("a", 0, 10)), NewList(names("b", 0, 10))
	c := &crowd{T: t, lists: map[int]List{0: a, 1: b}}
	c.settle()
	p, _ := c.read(0)
	assert.Len(t, p.entries, 20)
	delete(c.lists, 1)
	c.settle()
	p, _ = c.read(0)
	assert.Len(t, p.entries, 10)
	assert.True(t, p.whole != "", "and hashes are not written any more")
}

// A plan of a single list has no hashes. A member with a different list does not know the owners, so it waits for a
// plan with hashes.
func TestAPlanOfAnotherList(t *testing.T) {
	a, b := NewList(names("p", 0, 10)), NewList(names("p", 0, 11))
	p := next(t, nil, a, in(a, 0, 1))
	q, err := Decode(p.Encode(), b)
	require.NoError(t, err)
	assert.Equal(t, in(a, 0, 1), q.Members())
	assert.Empty(t, q.Assigned(b, 0))
	again, _ := Decode(p.Encode(), b)
	assert.True(t, q.Same(again))
	assert.False(t, q.Same(p) || p.Same(q))
	moved, _ := Decode(next(t, p, a, in(a, 0, 1, 2)).Encode(), b)
	assert.False(t, q.Same(moved))

	both := append(in(a, 0, 1), in(b, 2)...)
	_, ok := q.Next(b, both, now)
	assert.False(t, ok)
	_, ok = q.Next(b, in(a, 0, 1), now)
	assert.False(t, ok, "nor can one that is not counted yet")

	r, err := Decode(next(t, p, a, both).Encode(), b)
	require.NoError(t, err)
	assert.Equal(t, next(t, p, a, both).Assigned(a, 0), r.Assigned(b, 0), "a member with the list publishes what all can read")
	_, ok = r.Next(b, both, now)
	assert.True(t, ok)

	alone, ok := q.Next(b, in(b, 2), now)
	require.True(t, ok, "nobody has the other list any more")
	assert.Len(t, alone.Assigned(b, 2), 11)
}

// A plan has at most six lists. Members with a seventh list are assigned nothing and do not disturb the other members.
func TestMoreListsThanFit(t *testing.T) {
	c := &crowd{T: t, lists: map[int]List{}}
	for slot := range 20 {
		c.lists[slot] = NewList(names("p", 0, 40+slot/4))
	}
	for slot := range 20 {
		c.lists[20+slot] = NewList(append(names("p", 0, 40), strconv.Itoa(slot)))
	}
	c.settle()
	p, _ := c.read(0)
	require.Len(t, p.lists, maxLists)
	for slot, l := range c.lists {
		if p.bit(l.Digest()) == 0 {
			q, _ := c.read(slot)
			assert.Empty(t, q.Assigned(l, slot))
			assert.GreaterOrEqual(t, slot, 20, "the lists of the fewest members are left out")
			assert.True(t, p.Same(q))
		}
	}
}

// Partitions that only one member can have count towards its share, and the other members divide the rest evenly.
func TestTheOthersShareWhatIsLeft(t *testing.T) {
	all := names("p", 0, 60)
	a, b := NewList(all), NewList(append(names("b", 0, 30), all...))
	members := append(in(a, 1, 2, 3, 4, 5), in(b, 0)...)
	p := next(t, next(t, nil, b, members), a, members)
	assert.Len(t, p.Assigned(b, 0), 30)
	for slot := 1; slot <= 5; slot++ {
		assert.Len(t, p.Assigned(b, slot), 12)
	}
}

// The remainder stays with its owner, even if there are partitions that only one member can have.
func TestTheRemainderStays(t *testing.T) {
	all := names("p", 0, 21)
	a, b := NewList(all), NewList(append(slices.Clone(all), names("b", 0, 10)...))
	members := append(in(b, 0), in(a, 1, 2)...)
	for most := range 3 {
		shown := func(i int) (int, bool) {
			switch {
			case i > 20:
				return 0, true
			case i == 20:
				return most, true
			}
			return 1 + i/10, true
		}
		p := Of(b, members, shown)
		q := next(t, next(t, p, b, members), a, members)
		assert.Equal(t, owners(t, p, b), owners(t, q, b))
	}
}

// A member trusts its own list more than a row.
func TestAMemberCorrectsItsOwnNames(t *testing.T) {
	l, wrong, other := listOf("l", []uint64{2, 3}), listOf("l", []uint64{1, 2}), listOf("o", []uint64{9})
	members := append(in(l, 0), in(other, 1)...)
	p := next(t, next(t, nil, wrong, members), l, members)
	assert.Equal(t, []uint64{2, 3}, []uint64{p.entries[0].hash, p.entries[1].hash})
	assert.Len(t, p.entries, 2)
}

// For all lists, weights and trials: every partition that can be assigned is assigned, a member on trial has one
// partition at most, members stop publishing, and members that read the same text compute the same plan.
func TestAnyCrowdComesToRest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	for range 100 {
		lists := make([]List, 1+r.IntN(4))
		for i := range lists {
			from := r.IntN(30)
			lists[i] = NewList(names("p", from, from+r.IntN(40)))
		}
		c := &crowd{T: t, lists: map[int]List{}, trial: map[int]bool{}, heavy: map[int]int{}}
		for range 4 {
			for slot := range 8 {
				switch r.IntN(4) {
				case 0:
					delete(c.lists, slot)
				case 1:
					c.lists[slot], c.trial[slot] = lists[r.IntN(len(lists))], r.IntN(3) == 0
					c.heavy[slot] = r.IntN(2) * r.IntN(9)
				}
			}
			c.settle()
			var first *Plan
			for slot := range c.lists {
				p, _ := c.read(slot)
				if first == nil {
					first = p
				}
				require.True(t, first.Same(p), "members agree")
			}
			if first == nil {
				continue
			}
			full := map[uint16]bool{} // classes in which at least one member is not on trial
			for _, m := range first.members {
				for _, e := range first.entries {
					full[e.lists] = full[e.lists] || !m.Trial && first.bit(m.List)&e.lists != 0
				}
			}
			tried := map[int32]int{}
			for _, e := range first.entries {
				require.NotEqual(t, int32(none), e.owner)
				if first.members[e.owner].Trial && full[e.lists] {
					tried[e.owner]++
				}
			}
			for _, n := range tried {
				require.LessOrEqual(t, n, 1, "of what another could have, a member on trial has one partition")
			}
		}
	}
}

// A member may compute a plan for members that all have another list, for example when it leaves. Those members can read that plan,
// whatever it was based on, and the next one assigns all of their partitions.
func TestAPlanForMembersOfAnotherListIsForThem(t *testing.T) {
	a, b := NewList(names("p", 0, 20)), NewList(names("p", 5, 30))
	both := append(in(a, 0), in(b, 1, 2)...)
	for _, p := range []*Plan{nil, next(t, nil, a, in(a, 0)), next(t, nil, b, in(b, 1)), next(t, next(t, nil, a, both), b, both)} {
		for _, members := range [][]Member{in(b, 1, 2), in(b, 1), in(a, 0), both} {
			for _, l := range []List{a, b} { // whoever computes it
				q := next(t, p, l, members)
				for _, reader := range []List{a, b} {
					got, err := Decode(q.Encode(), reader)
					require.NoError(t, err)
					if members[len(members)-1].List == reader.Digest() {
						require.True(t, got.Same(q), "it is for its readers")
						owners(t, next(t, got, reader, members), reader)
					}
				}
			}
		}
	}
}
