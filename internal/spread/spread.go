// Package spread says which member of a group has which partitions. It is a pure function of the partitions' names
// and the slots that members are in: every process finds the same, without a coordinator, and without knowing who
// has what now.
//
//   - Shares differ by at most one.
//   - A member that joins takes only its share from the others; one that leaves moves only what it had.
//   - One that takes the slot of another takes just what that one had.
//
// That holds exactly for a group without holes: slots below the highest that nobody is in.
package spread

import (
	"cmp"
	"slices"
)

// Version is of the function. Processes that compute another must not plan together.
const Version = "1"

// Plan spreads a list of partitions. It belongs to one goroutine at a time.
type Plan struct {
	hashes []uint64
	grown  [][]int // the shares of so many slots, none of which is empty

	slots  []int // the last
	shares map[int][]int
}

// New makes the plan of these names, which everybody has to give in the same order.
func New(names []string) *Plan {
	p := &Plan{hashes: make([]uint64, len(names))}
	for i, name := range names {
		p.hashes[i] = hash(name)
	}
	return p
}

// Shares returns the indexes of the names that the member in each of the slots has. No slot is negative or given twice.
// The last answer is kept, and must not be changed.
func (p *Plan) Shares(slots []int) map[int][]int {
	if len(slots) == 0 {
		return nil
	}
	if slices.Equal(slots, p.slots) {
		return p.shares
	}
	own := p.grow(slices.Max(slots) + 1)
	left := make([]int, len(own))
	for i := range left {
		left[i] = i
	}
	for hole := range own {
		if !slices.Contains(slots, hole) {
			left = slices.DeleteFunc(left, func(i int) bool { return i == hole })
			p.deal(own, hole, left)
		}
	}
	shares := make(map[int][]int, len(slots))
	for _, slot := range slots {
		shares[slot] = own[slot]
	}
	p.slots, p.shares = slices.Clone(slots), shares
	return shares
}

// grow begins with one slot that has everything. Each further slot takes from every lower one what that has over
// its share of an even split: those that come first in an order of their own for each new slot.
func (p *Plan) grow(slots int) [][]int {
	if len(p.grown) == 0 || slots < len(p.grown) {
		all := make([]int, len(p.hashes))
		for i := range all {
			all[i] = i
		}
		p.grown = [][]int{all}
	}
	for k := len(p.grown); k < slots; k++ {
		var taken []int
		for i := range k {
			over := len(p.grown[i]) - share(len(p.hashes), k+1, i)
			first, rest := split(p.grown[i], max(over, 0), func(partition int) uint64 { return rank(k, p.hashes[partition]) })
			taken, p.grown[i] = append(taken, first...), rest
		}
		p.grown = append(p.grown, taken)
	}
	own := make([][]int, slots)
	for i := range own {
		own[i] = slices.Clone(p.grown[i])
	}
	return own
}

// deal gives what the hole has to the slots that are left, up to their shares: of all pairs of a partition and a
// slot, in an order of their own for each hole, the first that still fit.
func (p *Plan) deal(own [][]int, hole int, left []int) {
	type pair struct {
		rank            uint64
		partition, slot int
	}
	room := map[int]int{}
	var pairs []pair
	for r, slot := range left {
		if room[slot] = share(len(p.hashes), len(left), r) - len(own[slot]); room[slot] <= 0 {
			continue
		}
		for _, partition := range own[hole] {
			pairs = append(pairs, pair{mix(rank(slot, p.hashes[partition]) ^ uint64(hole)), partition, slot})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.partition, b.partition), cmp.Compare(a.slot, b.slot))
	})
	dealt := make(map[int]bool, len(own[hole]))
	for _, pr := range pairs {
		if !dealt[pr.partition] && room[pr.slot] > 0 {
			dealt[pr.partition] = true
			room[pr.slot]--
			own[pr.slot] = append(own[pr.slot], pr.partition)
		}
	}
	own[hole] = nil
}

// split returns the n partitions of the lowest rank, and the others.
func split(partitions []int, n int, rank func(int) uint64) (first, rest []int) {
	if n == 0 {
		return nil, partitions
	}
	type ranked struct {
		rank      uint64
		partition int
	}
	lowest := make([]ranked, len(partitions))
	for i, partition := range partitions {
		lowest[i] = ranked{rank(partition), partition}
	}
	slices.SortFunc(lowest, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.partition, b.partition))
	})
	for i, l := range lowest {
		if i < n {
			first = append(first, l.partition)
		} else {
			rest = append(rest, l.partition)
		}
	}
	return first, rest
}

// share is that of the i-th of m slots, in an even split of n.
func share(n, m, i int) int {
	if i < n%m {
		return n/m + 1
	}
	return n / m
}

const golden = 0x9e3779b97f4a7c15

// rank is where a partition comes in the order of a slot.
func rank(slot int, partition uint64) uint64 { return mix(mix2(slot) ^ partition) }

func mix2(slot int) uint64 { return uint64(slot+1) * golden }

// hash is FNV-1a, mixed, as its own high bits hardly depend on the last characters.
func hash(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h)
}

// mix is the finalizer of splitmix64.
func mix(h uint64) uint64 {
	h += golden
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
