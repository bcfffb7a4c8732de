package plan

import (
	"cmp"
	"slices"
)

// maxPairs is the maximum number of pairs of a partition and a slot that are sorted. Sorting more would take too long.
const maxPairs = 300_000

// assigning is a plan whose entries are being assigned.
type assigning struct {
	*Plan
	home []int32 // for each entry, the index of the evicted member that had it, if that member has returned, or none
	load []int   // the number of partitions that each member has in the classes assigned so far
}

// A class is the set of entries that are in the lists of the same members.
type class struct {
	eligible []int // indexes of members
	entries  []int
	trial    bool // all eligible members are on trial
}

// classes returns the classes in the order in which they are assigned. Entries that only a few members can have come
// first, so that the assignment of the other entries can even out the load.
func (a *assigning) classes() []class {
	by := map[uint16]*class{}
	var last uint16
	var c *class
	for i, e := range a.entries {
		if e.lists != last {
			if last, c = e.lists, by[e.lists]; c == nil {
				c = a.class(e.lists)
				by[e.lists] = c
			}
		}
		c.entries = append(c.entries, i)
	}
	var all []class
	for _, c := range by {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b class) int {
		return cmp.Or(cmp.Compare(len(a.eligible), len(b.eligible)), slices.Compare(a.eligible, b.eligible))
	})
	return all
}

func (a *assigning) class(lists uint16) *class {
	c := &class{trial: true}
	for i, m := range a.members {
		if a.bit(m.List)&lists != 0 {
			c.eligible, c.trial = append(c.eligible, i), c.trial && m.Trial
		}
	}
	return c
}

// assign gives each entry of the class an owner.
func (a *assigning) assign(c class) {
	kept := a.keep(c)
	quota, room := a.quotas(c, kept), make([]int, len(a.members))
	for _, i := range c.eligible {
		room[i] = quota[i] - a.load[i] - kept[i]
	}
	a.giveUp(c, room)
	var pool []int
	for _, i := range c.entries {
		if a.entries[i].owner == none {
			pool = append(pool, i)
		}
	}
	a.assignPool(a.bringHome(pool, room), room)
	for _, i := range c.entries {
		a.load[a.entries[i].owner]++
	}
}

// keep returns the number of entries of the class that each member has. Entries whose owner is not eligible become
// unassigned.
func (a *assigning) keep(c class) []int {
	eligible := make([]bool, len(a.members))
	for _, i := range c.eligible {
		eligible[i] = true
	}
	kept := make([]int, len(a.members))
	for _, i := range c.entries {
		e := &a.entries[i]
		if e.owner != none && eligible[e.owner] {
			kept[e.owner]++
		} else {
			e.owner = none
		}
	}
	return kept
}

// quotas returns the number of partitions that each member gets from this class and the classes before it. A member
// that already has more than its quota gets nothing from this class. The other quotas are then computed without that
// member and its partitions.
func (a *assigning) quotas(c class, kept []int) []int {
	quota := make([]int, len(a.members))
	for in := slices.Clone(c.eligible); ; {
		total := len(c.entries)
		for _, i := range in {
			total += a.load[i]
		}
		a.split(total, in, kept, quota, c.trial)
		n := len(in)
		in = slices.DeleteFunc(in, func(i int) bool { return a.load[i] > quota[i] })
		if len(in) == n {
			return quota
		}
	}
}

// split sets the quotas of the members in the argument in, so that their sum is total. A member on trial gets one
// partition at most, and the rest of its share goes to the other members.
func (a *assigning) split(total int, in, kept, quota []int, trial bool) {
	var full []int
	for _, i := range in {
		if trial || !a.members[i].Trial {
			full = append(full, i)
		}
	}
	if len(full) == 0 { // only members on trial remain, and the share of each is less than one partition
		a.level(total, in, kept, quota, func(int) int { return 1 })
		return
	}
	weight := func(i int) int { return a.members[i].Weight }
	a.level(total, in, kept, quota, weight)
	if len(full) == len(in) {
		return
	}
	left := total
	for _, i := range in {
		if a.members[i].Trial && !trial {
			quota[i] = min(quota[i], 1)
			left -= quota[i]
		}
	}
	a.level(left, full, kept, quota, weight)
}

// share returns the whole part of a member's share of total, where sum is the sum of all weights.
func share(total, weight, sum int) int { return int(int64(total) * int64(weight) / int64(sum)) }

// level sets quotas in proportion to the weights. The remainder goes first to members that have more than the whole
// part of their share, so that the fewest partitions move. Members on trial come last.
func (a *assigning) level(total int, in, kept, quota []int, weight func(i int) int) {
	sum := 0
	for _, i := range in {
		sum += weight(i)
	}
	left := total
	fraction := make([]int64, len(a.members))
	var more []int
	for _, i := range in {
		quota[i] = share(total, weight(i), sum)
		left -= quota[i]
		if fraction[i] = int64(total) * int64(weight(i)) % int64(sum); fraction[i] > 0 {
			more = append(more, i)
		}
	}
	keeps := func(i int) int {
		if a.load[i]+kept[i] > quota[i] {
			return 0
		}
		return 1
	}
	trial := func(i int) int {
		if a.members[i].Trial {
			return 1
		}
		return 0
	}
	slices.SortFunc(more, func(x, y int) int {
		return cmp.Or(cmp.Compare(keeps(x), keeps(y)), cmp.Compare(trial(x), trial(y)), cmp.Compare(fraction[y], fraction[x]),
			cmp.Compare(mix(uint64(a.members[x].Slot)), mix(uint64(a.members[y].Slot))))
	})
	for _, i := range more[:left] {
		quota[i]++
	}
}

// giveUp takes partitions from members that have more than their quotas. It first takes partitions whose former owners
// have returned, and then partitions whose former owners are still absent. So if members return one after another, each
// of them gets its own partitions.
func (a *assigning) giveUp(c class, room []int) {
	var over []int
	for _, i := range c.entries {
		if owner := a.entries[i].owner; owner != none && room[owner] < 0 {
			over = append(over, i)
		}
	}
	wanted := func(i int) int {
		switch home := a.home[i]; {
		case home != none && room[home] > 0:
			return 0
		case a.entries[i].former != none:
			return 1
		}
		return 2
	}
	slices.SortFunc(over, func(x, y int) int {
		return cmp.Or(cmp.Compare(wanted(x), wanted(y)), cmp.Compare(mix(a.entries[x].hash), mix(a.entries[y].hash)))
	})
	for _, i := range over {
		if owner := a.entries[i].owner; room[owner] < 0 {
			room[owner]++
			a.entries[i].owner = none
		}
	}
}

// bringHome assigns partitions to the members that had them and have returned. It returns the remaining entries.
func (a *assigning) bringHome(pool, room []int) []int {
	return slices.DeleteFunc(pool, func(i int) bool {
		home := a.home[i]
		if home == none || room[home] <= 0 {
			return false
		}
		room[home]--
		a.entries[i].owner = home
		return true
	})
}

// assignPool assigns the entries to members with room.
func (a *assigning) assignPool(pool, room []int) {
	var open []int
	for i, r := range room {
		if r > 0 {
			open = append(open, i)
		}
	}
	if len(pool)*len(open) > maxPairs {
		a.assignMany(pool, open, room)
	} else {
		a.assignPairs(pool, open, room)
	}
}

// assignMany assigns each entry to a member with room that it chooses by the hash of the entry.
func (a *assigning) assignMany(pool, open, room []int) {
	for _, i := range pool {
		at := int(mix(a.entries[i].hash) % uint64(len(open)))
		to := open[at]
		a.entries[i].owner = int32(to)
		if room[to]--; room[to] == 0 {
			open = slices.Delete(open, at, at+1)
		}
	}
}

// assignPairs assigns entries by pairs of an entry and a member. It goes through the pairs in slot order and uses each
// pair that still fits. It sorts only some of the pairs at a time, because most of the pairs come too late to be used.
func (a *assigning) assignPairs(pool, open, room []int) {
	pairs := make([]pair, 0, len(pool)*len(open))
	for _, to := range open {
		for _, i := range pool {
			pairs = append(pairs, pair{slotOrder(a.members[to].Slot, a.entries[i].hash), int32(i), int32(to)})
		}
	}
	for left := len(pool); left > 0; {
		n := min(4*left, len(pairs))
		lowest(pairs, n)
		slices.SortFunc(pairs[:n], pair.compare)
		for _, x := range pairs[:n] {
			if a.entries[x.entry].owner == none && room[x.to] > 0 {
				a.entries[x.entry].owner = x.to
				room[x.to]--
				left--
			}
		}
		pairs = slices.DeleteFunc(pairs[n:], func(x pair) bool { return a.entries[x.entry].owner != none || room[x.to] <= 0 })
	}
}

// slotOrder returns the position of an entry in the order in which a slot prefers entries.
func slotOrder(slot int, entry uint64) uint64 { return mix(mix(uint64(slot+1)*golden) ^ entry) }

// A pair is an entry and a member to which the entry can be assigned.
type pair struct {
	order     uint64
	entry, to int32
}

func (a pair) compare(b pair) int {
	if a.order != b.order {
		return cmp.Compare(a.order, b.order)
	}
	return cmp.Or(cmp.Compare(a.entry, b.entry), cmp.Compare(a.to, b.to))
}

// lowest moves the first n pairs in slot order to the front, without sorting them.
func lowest(pairs []pair, n int) {
	for len(pairs) > 1 && n > 0 && n < len(pairs) {
		pivot, low := pairs[len(pairs)/2], 0
		pairs[len(pairs)/2], pairs[len(pairs)-1] = pairs[len(pairs)-1], pivot
		for i, x := range pairs {
			if x.compare(pivot) < 0 {
				pairs[i], pairs[low] = pairs[low], x
				low++
			}
		}
		pairs[len(pairs)-1], pairs[low] = pairs[low], pivot
		if low < n { // the pivot is among the first n
			pairs, n = pairs[low+1:], n-low-1
		} else {
			pairs = pairs[:low]
		}
	}
}
