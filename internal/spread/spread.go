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

	pairs  []pair // room for them
	slots  []int  // the last
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
			first, rest := p.split(p.grown[i], over, k)
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
// slot, in an order of their own for each hole, the first that still fit. The order is found some pairs at a time, as
// most of them come too late.
func (p *Plan) deal(own [][]int, hole int, left []int) {
	partitions := own[hole]
	slices.Sort(partitions)
	room, dealt := make([]int, len(left)), make([]bool, len(partitions))
	pairs := p.pairs[:0]
	for r, slot := range left {
		if room[r] = share(len(p.hashes), len(left), r) - len(own[slot]); room[r] <= 0 {
			continue
		}
		for i, partition := range partitions {
			pairs = append(pairs, pair{mix(rank(slot, p.hashes[partition]) ^ uint64(hole)), i, r})
		}
	}
	p.pairs = pairs
	for undealt := len(partitions); len(pairs) > 0 && undealt > 0; {
		n := min(4*undealt, len(pairs))
		lowest(pairs, n)
		slices.SortFunc(pairs[:n], pair.compare)
		for _, pr := range pairs[:n] {
			if !dealt[pr.i] && room[pr.r] > 0 {
				dealt[pr.i] = true
				room[pr.r]--
				undealt--
				own[left[pr.r]] = append(own[left[pr.r]], partitions[pr.i])
			}
		}
		pairs = slices.DeleteFunc(pairs[n:], func(pr pair) bool { return dealt[pr.i] || room[pr.r] <= 0 })
	}
	own[hole] = nil
}

// split returns the n partitions of the lowest rank in the order of a slot, and the others.
func (p *Plan) split(partitions []int, n, slot int) (first, rest []int) {
	if n <= 0 {
		return nil, partitions
	}
	pairs := p.pairs[:0]
	for _, partition := range partitions {
		pairs = append(pairs, pair{rank: rank(slot, p.hashes[partition]), i: partition})
	}
	p.pairs = pairs
	lowest(pairs, n)
	for i, pr := range pairs {
		partitions[i] = pr.i
	}
	return partitions[:n], partitions[n:]
}

// A pair is a partition and a slot, by their indexes in whatever list, where it comes in an order.
type pair struct {
	rank uint64
	i, r int
}

func (a pair) compare(b pair) int {
	if a.rank != b.rank {
		return cmp.Compare(a.rank, b.rank)
	}
	return cmp.Or(cmp.Compare(a.i, b.i), cmp.Compare(a.r, b.r))
}

// lowest moves the n pairs that come first to the front, in no order.
func lowest(pairs []pair, n int) {
	for len(pairs) > 1 && n > 0 && n < len(pairs) {
		pivot, low := pairs[len(pairs)/2], 0
		pairs[len(pairs)/2], pairs[len(pairs)-1] = pairs[len(pairs)-1], pivot
		for i, pr := range pairs {
			if pr.compare(pivot) < 0 {
				pairs[i], pairs[low] = pairs[low], pr
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
