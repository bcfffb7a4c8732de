package plan

import (
	"cmp"
	"slices"
)

// maxPairs is how many pairs of a partition and a slot are ordered: more would take too long.
const maxPairs = 300_000

// assigning is a plan while its entries are assigned.
type assigning struct {
	*Plan
	home []int32 // for each entry the index of the member that had it, was evicted and is back, or none
	load []int   // how many partitions of the classes so far each member has
}

// A class is the entries that are in the lists of the same members.
type class struct {
	eligible []int // indexes of members
	entries  []int
	trial    bool // all eligible members are on trial
}

// classes returns the classes in the order of assignment. Entries that only few members can have come first: the others
// make up for it.
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

// keep counts what each member has of the class. Entries of other owners become nobody's.
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

// quotas returns how many partitions, of this class and those before it, each member gets. A member that already has
// more is left out, and so are its partitions: its quota is too low for any of this class.
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

// split sets the quotas of these members, whose sum is total. All but one of the partitions of a member on trial go to
// the others.
func (a *assigning) split(total int, in, kept, quota []int, trial bool) {
	var full []int
	for _, i := range in {
		if trial || !a.members[i].Trial {
			full = append(full, i)
		}
	}
	if len(full) == 0 { // the others have more than their share: less than one is left for each of these
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

// share returns a share's whole part.
func share(total, weight, sum int) int { return int(int64(total) * int64(weight) / int64(sum)) }

// level sets quotas in proportion to the weights. The remainder goes first to members that have more than the whole
// part of their share: then the fewest partitions move. It goes last to members on trial.
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

// giveUp takes from members what they have above their quotas: first what belongs to a member that is back, then what
// belongs to one that is still gone. So members that come back one after the other each find their own.
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

// bringHome assigns to members that are back what they had, and returns the other entries.
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

// assignPool assigns the entries to the members with room.
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

// assignMany takes a member with room for each entry.
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

// assignPairs takes the first fitting pairs of an entry and a member, in their slot order. It sorts some pairs at a
// time: most of them come too late.
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

// slotOrder returns an entry's place in the order of a slot.
func slotOrder(slot int, entry uint64) uint64 { return mix(mix(uint64(slot+1)*golden) ^ entry) }

// A pair is an entry and a member that may be assigned to it.
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

// lowest moves the n pairs that come first to the front, in no order.
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
		if low < n { // the pivot is one of them
			pairs, n = pairs[low+1:], n-low-1
		} else {
			pairs = pairs[:low]
		}
	}
}
