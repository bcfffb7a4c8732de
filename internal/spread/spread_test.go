package spread

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	slices.Sort(names)
	return names
}

func upTo(n int) []int {
	slots := make([]int, n)
	for i := range slots {
		slots[i] = i
	}
	return slots
}

// owners is who has each partition.
func owners(t *testing.T, p *Plan, n int, slots []int) []int {
	t.Helper()
	owner := make([]int, n)
	for i := range owner {
		owner[i] = -1
	}
	least, most := n, 0
	for slot, has := range p.Shares(slots) {
		require.Contains(t, slots, slot, "who is not there has nothing")
		least, most = min(least, len(has)), max(most, len(has))
		for _, i := range has {
			require.Equal(t, -1, owner[i], "partition %d has two owners among %v", i, slots)
			owner[i] = slot
		}
	}
	require.NotContains(t, owner, -1, "a partition has no owner among %v", slots)
	require.LessOrEqual(t, most-least, 1, "%d partitions of %v", n, slots)
	return owner
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

// Processes of different builds have to find the same: another result needs another Version.
func TestThePlanIsTheSameInEveryBuildOfItsVersion(t *testing.T) {
	require.Equal(t, "1", Version)
	for _, known := range []struct {
		n     int
		slots []int
		sum   uint64
	}{
		{1, upTo(1), 0x5ada718719d45452},
		{7, upTo(3), 0x6579e5f0e5aecd27},
		{64, upTo(20), 0xca0a69adb5abaf36},
		{64, []int{0, 2, 5, 9}, 0x53a569042fcd3a68},
		{1000, slices.DeleteFunc(upTo(50), func(i int) bool { return i%3 == 0 }), 0x68e25584a5d31268},
		{1000, []int{7}, 0x64e70984de8f80b},
		{333, []int{50, 3, 2, 1}, 0x7567a621f2c91944},
		{3, upTo(5), 0x4b7c6934fe6c34cb},
	} {
		names := numbered(known.n)
		owner := owners(t, New(names), known.n, known.slots)
		var text []string
		for i, name := range names {
			text = append(text, fmt.Sprintf("%s=%d", name, owner[i]))
		}
		assert.Equal(t, known.sum, hash(strings.Join(text, ",")), "%d partitions of %v", known.n, known.slots)
	}
}

// What is found some pairs at a time is what sorting all of them would find, also if names have one hash.
func TestThePlanIsThatOfItsDescription(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		n, top := 1+random.IntN(300), 1+random.IntN(40)
		p := New(numbered(n))
		for range random.IntN(n) {
			p.hashes[random.IntN(n)] = p.hashes[random.IntN(n)]
		}
		slots := random.Perm(top)[:1+random.IntN(top)]
		want := described(p.hashes, slots)
		for slot, has := range p.Shares(slots) {
			assert.ElementsMatch(t, want[slot], has, "%d partitions of %v", n, slots)
		}
	}
}

// described is the plan, word by word.
func described(hashes []uint64, slots []int) [][]int {
	own := [][]int{make([]int, len(hashes))}
	for i := range hashes {
		own[0][i] = i
	}
	for k := 1; k <= slices.Max(slots); k++ {
		var taken []int
		for i := range own {
			slices.SortFunc(own[i], func(a, b int) int {
				return cmp.Or(cmp.Compare(rank(k, hashes[a]), rank(k, hashes[b])), cmp.Compare(a, b))
			})
			over := max(len(own[i])-share(len(hashes), k+1, i), 0)
			taken, own[i] = append(taken, own[i][:over]...), own[i][over:]
		}
		own = append(own, taken)
	}
	left := upTo(len(own))
	for hole := range own {
		if slices.Contains(slots, hole) {
			continue
		}
		left = slices.DeleteFunc(left, func(i int) bool { return i == hole })
		room := map[int]int{}
		var pairs [][2]int
		for r, slot := range left {
			room[slot] = share(len(hashes), len(left), r) - len(own[slot])
			for _, i := range own[hole] {
				pairs = append(pairs, [2]int{i, slot})
			}
		}
		order := func(pr [2]int) uint64 { return mix(rank(pr[1], hashes[pr[0]]) ^ uint64(hole)) }
		slices.SortFunc(pairs, func(a, b [2]int) int {
			return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
		})
		dealt := map[int]bool{}
		for _, pr := range pairs {
			if i, slot := pr[0], pr[1]; !dealt[i] && room[slot] > 0 {
				dealt[i] = true
				room[slot]--
				own[slot] = append(own[slot], i)
			}
		}
		own[hole] = nil
	}
	return own
}

func TestAMemberThatJoinsTakesItsShareAndMovesNothingElse(t *testing.T) {
	for _, n := range []int{1, 7, 64, 100, 1000, 10_000} {
		p := New(numbered(n))
		before := owners(t, p, n, upTo(1))
		for m := 2; m <= 60; m++ {
			after := owners(t, p, n, upTo(m))
			for i := range after {
				if after[i] != before[i] {
					require.Equal(t, m-1, after[i], "partition %d moved between two that were there before", i)
				}
			}
			require.LessOrEqual(t, moved(before, after), (n+m-1)/m)
			require.GreaterOrEqual(t, moved(before, after), n/m)
			before = after
		}
	}
}

func TestAMemberThatLeavesMovesOnlyWhatItHad(t *testing.T) {
	for _, n := range []int{7, 64, 300} {
		p := New(numbered(n))
		for m := 2; m <= 30; m++ {
			before := owners(t, p, n, upTo(m))
			for leaver := range m {
				slots := slices.DeleteFunc(upTo(m), func(i int) bool { return i == leaver })
				after := owners(t, p, n, slots)
				for i := range after {
					if before[i] != leaver {
						require.Equal(t, before[i], after[i], "partition %d of %d moved when %d of %d left", i, n, leaver, m)
					}
				}
				require.Equal(t, before, owners(t, p, n, upTo(m)), "who takes its slot has what it had")
			}
		}
	}
}

// Whatever set of slots comes after whatever other, the plan is what a fresh one would be: it has no history.
func TestThePlanHasNoHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	p := New(numbered(100))
	for range 200 {
		slots := random.Perm(30)[:1+random.IntN(12)]
		require.Equal(t, owners(t, New(numbered(100)), 100, slots), owners(t, p, 100, slots), "%v", slots)
	}
}

func TestMembersThatComeAndGoAtRandomMoveLittleMoreThanNeeded(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	n, p := 64, New(numbered(64))
	slots := upTo(20)
	before := owners(t, p, n, slots)
	var moves, needed int
	for range 400 {
		if i := random.IntN(len(slots)); random.IntN(2) == 0 && len(slots) > 17 || len(slots) > 23 {
			needed += count(before, slots[i])
			slots = slices.Delete(slices.Clone(slots), i, i+1)
		} else {
			slots = append(slices.Clone(slots), free(slots))
			needed += n / len(slots)
		}
		after := owners(t, p, n, slots)
		moves += moved(before, after)
		before = after
	}
	t.Logf("moved %.2f times what had to", float64(moves)/float64(needed))
	require.Less(t, float64(moves)/float64(needed), 1.5)
	require.GreaterOrEqual(t, moves, needed)
}

func count(owner []int, slot int) (n int) {
	for _, o := range owner {
		if o == slot {
			n++
		}
	}
	return n
}

// free is the slot that a member takes: the highest below the highest in use, else the one above that.
func free(slots []int) int {
	top := slices.Max(slots)
	for slot := top; slot >= 0; slot-- {
		if !slices.Contains(slots, slot) {
			return slot
		}
	}
	return top + 1
}

func BenchmarkShares(b *testing.B) {
	for _, size := range []struct{ n, m int }{{64, 4}, {1000, 20}, {10_000, 100}, {20_000, 300}, {20_000, 1000}} {
		b.Run(fmt.Sprintf("%d of %d", size.n, size.m), func(b *testing.B) {
			names, slots := numbered(size.n), slices.DeleteFunc(upTo(size.m), func(i int) bool { return i%17 == 3 })
			for b.Loop() {
				New(names).Shares(slots)
			}
		})
	}
}
