package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heritage is what should be remembered about the partitions of a group whose members have identities, computed from all its plans
// by the rules of the documentation.
type heritage struct {
	members []Member
	owner   []int            // for each partition, the slot of its member, or -1
	former  []string         // the evicted member to which each partition belongs
	until   map[string]int64 // until when the evicted members are remembered
}

func find(members []Member, is func(Member) bool) (Member, bool) {
	i := slices.IndexFunc(members, is)
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// pass computes who has each partition just before the next plan is made, and the slot of the former member of each that is back.
func (h *heritage) pass(members []Member, now time.Time) (home []int) {
	for id, until := range h.until {
		if until <= now.UnixMilli() {
			delete(h.until, id)
		}
	}
	was := func(id string) bool {
		_, planned := find(h.members, func(m Member) bool { return m.ID == id })
		return id != "" && (planned || h.until[id] > 0)
	}
	heirs, evicted := map[int]int{-1: -1}, map[int]string{}
	for _, m := range h.members {
		inSlot, taken := find(members, func(o Member) bool { return o.Slot == m.Slot })
		moved, present := find(members, func(o Member) bool { return m.ID != "" && o.ID == m.ID })
		switch {
		case taken && inSlot.ID == m.ID:
			heirs[m.Slot] = m.Slot
		case present:
			heirs[m.Slot] = moved.Slot
		default:
			heirs[m.Slot] = -1
			if taken && !was(inSlot.ID) {
				heirs[m.Slot] = m.Slot
			}
			if m.ID != "" {
				evicted[m.Slot] = m.ID
			}
		}
	}
	for _, id := range evicted {
		h.until[id] = now.Add(keep).UnixMilli()
	}
	for i, slot := range h.owner {
		first := h.former[i]
		if h.until[first] == 0 {
			first = evicted[slot]
		}
		h.owner[i], h.former[i] = heirs[slot], first
		back, is := find(members, func(m Member) bool { return m.ID != "" && m.ID == first })
		if home = append(home, -1); is {
			home[i], h.former[i] = back.Slot, ""
		}
	}
	for id := range h.until {
		if !slices.Contains(h.former, id) {
			delete(h.until, id)
		}
	}
	h.members = members
	return home
}

// Whatever members with and without an identity do, no more partitions move than must, and a partition goes back to the member that
// had it first, if that member is back in time. It is remembered of no other. Members that have too many give up those that belong
// to a member that is back, then those of a member that is not, and then the others.
func TestPartitionsAreInherited(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for range 80 {
		all := names("p", 0, 1+r.IntN(40))
		l := NewList(all)
		h := heritage{owner: slices.Repeat([]int{-1}, len(all)), former: make([]string, len(all)), until: map[string]int64{}}
		var p *Plan
		now := now
		for step := range 25 {
			members := slices.Clone(h.members)
			for range 1 + r.IntN(3) {
				m := in(l, r.IntN(9))[0]
				if r.IntN(4) > 0 {
					m.ID, m.Keep = "pod-"+strconv.Itoa(r.IntN(7)), keep
				}
				m.Weight = 1 + r.IntN(8)/7
				members = slices.DeleteFunc(members, func(o Member) bool {
					return o.Slot == m.Slot || m.ID != "" && o.ID == m.ID || r.IntN(5) == 0
				})
				if r.IntN(3) > 0 {
					members = append(members, m)
				}
			}
			now = now.Add(time.Duration(r.IntN(4)) * keep / 4)
			home := h.pass(members, now)
			before := slices.Clone(h.owner)
			q, ok := p.Next(l, members, now)
			require.True(t, ok)
			h.owner = assignments(t, q, l)
			what := fmt.Sprintf("step %d: %v after %v, %v", step, h.owner, before, members)
			sum, has, had := 0, count(h.owner), count(before)
			for _, m := range members {
				sum += m.Weight
			}
			for _, m := range members {
				require.InDelta(t, float64(len(all)*m.Weight)/float64(sum), has[m.Slot], 0.9999, "a share: %s", what)
			}
			if p = q; len(members) == 0 { // nobody has a list, so no partition is known any more
				h.former = make([]string, len(all))
				clear(h.until)
				continue
			}
			require.Equal(t, bound(before, members), moved(before, h.owner), "the fewest move: %s", what)
			rank := func(i int) int { // the lower, the sooner it is given up
				switch {
				case home[i] >= 0 && has[home[i]] > had[home[i]]:
					return 0
				case h.former[i] != "":
					return 1
				}
				return 2
			}
			last := map[int]int{} // for each slot, the highest rank that it has given up
			for i, slot := range before {
				if slot >= 0 && h.owner[i] != slot {
					last[slot] = max(last[slot], rank(i))
				}
			}
			for i, slot := range h.owner {
				if slot >= 0 && slot == before[i] {
					require.LessOrEqual(t, last[slot], rank(i), "%d is kept: %s", i, what)
				}
				if slot >= 0 && home[i] >= 0 && slot != before[i] && slot != home[i] { // somebody else has what could be at home
					for j, other := range h.owner {
						require.False(t, other == home[i] && before[j] != other && home[j] != other, "%d has got %d instead of %d: %s", other, j, i, what)
					}
				}
				at, is := slices.BinarySearchFunc(q.entries, hash(all[i]), func(e entry, hash uint64) int { return cmp.Compare(e.hash, hash) })
				require.True(t, is)
				require.Equal(t, h.former[i], q.entries[at].former, "%d: %s", i, what)
			}
			require.Equal(t, h.until, q.evicted, what)
			p = republished(t, q, l)
		}
	}
}
