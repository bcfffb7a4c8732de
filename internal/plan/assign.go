package plan

import (
	"cmp"
	"slices"
)

// assigning is a plan whose entries are being assigned.
type assigning struct {
	*Plan
	home []int32  // for each entry, the index of the evicted member that had it, if that member has returned, or none
	load []int    // the number of partitions that each member has in the classes assigned so far
	seed []uint64 // for each member, a number for its slot
}

// A class is the set of entries that are in the lists of the same members.
type class struct {
	eligible []int // indexes of members
	entries  []int
	trial    bool // all eligible members are on trial
}

// classes returns the classes in the order in which they are assigned. Classes with the fewest eligible members come
// first. The classes that follow can then balance the load, because more members are eligible for them.
func (a *assigning) classes() []class {
	by := map[uint16]*class{}
	for i, e := range a.entries {
		if by[e.lists] == nil {
			by[e.lists] = a.class(e.lists)
		}
		by[e.lists].entries = append(by[e.lists].entries, i)
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

// keep returns how many entries of the class each member keeps. If the owner of an entry is not eligible for the class,
// keep makes the entry unassigned.
func (a *assigning) keep(c class) []int {
	kept := make([]int, len(a.members))
	for _, i := range c.entries {
		e := &a.entries[i]
		if e.owner != none && a.bit(a.members[e.owner].List)&e.lists != 0 {
			kept[e.owner]++
		} else {
			e.owner = none
		}
	}
	return kept
}

// quotas returns how many partitions each member may own in total, counting this class and the classes assigned before
// it. A member that has more than its quota from the earlier classes gets nothing from this class. The quotas of the
// other members are then computed again, without that member and its partitions.
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

// split divides the total number of partitions among the members with the given indexes. A member on trial gets at most
// one partition, and the other members share the rest. If all eligible members are on trial, the caller sets trial, and
// none of them is limited.
func (a *assigning) split(total int, in, kept, quota []int, trial bool) {
	in = slices.Clone(in)
	for n := 0; n != len(in) && !trial; {
		n = len(in)
		of, sum := total, a.weights(in)
		in = slices.DeleteFunc(in, func(i int) bool {
			m := a.members[i]
			if !m.Trial || share(of, m.Weight, sum) == 0 {
				return false
			}
			quota[i] = 1
			total--
			return true
		})
	}
	a.level(total, in, kept, quota)
}

func (a *assigning) weights(in []int) (sum int) {
	for _, i := range in {
		sum += a.members[i].Weight
	}
	return sum
}

// share returns a member's share of total, rounded down. The argument sum is the sum of all weights.
func share(total, weight, sum int) int { return int(int64(total) * int64(weight) / int64(sum)) }

// level divides the total number of partitions in proportion to the members' weights, and rounds each quota down. It
// then gives the remaining partitions, one each, to members whose quotas were rounded. Members that own more than their
// rounded quotas come first, so that as few partitions as possible move. Both among these and among the others, members
// on trial come last.
func (a *assigning) level(total int, in, kept, quota []int) {
	left, sum := total, a.weights(in)
	fraction := make([]int64, len(a.members))
	var more []int
	for _, i := range in {
		weight := a.members[i].Weight
		quota[i] = share(total, weight, sum)
		left -= quota[i]
		if fraction[i] = int64(total) * int64(weight) % int64(sum); fraction[i] > 0 {
			more = append(more, i)
		}
	}
	rank := func(i int) (r int) {
		if a.load[i]+kept[i] <= quota[i] {
			r = 2
		}
		if a.members[i].Trial {
			r++
		}
		return r
	}
	slices.SortFunc(more, func(x, y int) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(fraction[y], fraction[x]),
			cmp.Compare(mix(uint64(a.members[x].Slot)), mix(uint64(a.members[y].Slot))))
	})
	for _, i := range more[:left] {
		quota[i]++
	}
}

// giveUp takes partitions away from members that own more than their quotas. It first takes partitions whose former
// owner has returned and has room for them, then partitions whose former owner is still absent, and then all others. In
// this way, members that return one after another get their own partitions back.
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
		case a.entries[i].former != "":
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

// bringHome assigns partitions to former owners that have returned. It returns the entries that are still unassigned.
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

// assignPool assigns each entry to the member with room whose slot prefers it most.
func (a *assigning) assignPool(pool, room []int) {
	var open []int
	for i, r := range room {
		if r > 0 {
			open = append(open, i)
		}
	}
	for _, i := range pool {
		best := 0
		for at := range open {
			if a.prefers(open[at], i) < a.prefers(open[best], i) {
				best = at
			}
		}
		to := open[best]
		a.entries[i].owner = int32(to)
		if room[to]--; room[to] == 0 {
			open = slices.Delete(open, best, best+1)
		}
	}
}

// prefers returns the position of an entry in the order in which the slot of a member prefers entries.
func (a *assigning) prefers(member, entry int) uint64 {
	return mix(a.seed[member] ^ a.entries[entry].hash)
}
