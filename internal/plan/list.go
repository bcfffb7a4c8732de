package plan

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// version is the version of the hash function and of the algorithm of Next. It is part of a list's digest, because two
// versions could compute different plans from the same names.
const version = "3"

// List is a list of partitions. Members with the same list compute the same digest, regardless of the order of the
// names.
type List struct {
	digest string
	hashes []uint64 // ascending and unique; names with the same hash share an entry and are assigned together
	at     []int    // for each name, the index of its hash
}

// NewList returns the list of these names. A partition's index is the position of its name in names.
func NewList(names []string) List {
	sorted := slices.Sorted(slices.Values(names))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\x00")))
	hashes := make([]uint64, len(names))
	for i, name := range names {
		hashes[i] = hash(name)
	}
	return listOf(fmt.Sprintf("%s/%x", version, sum[:8]), hashes)
}

func listOf(digest string, hashes []uint64) List {
	l := List{digest: digest, hashes: slices.Compact(slices.Sorted(slices.Values(hashes))), at: make([]int, len(hashes))}
	for i, h := range hashes {
		l.at[i], _ = slices.BinarySearch(l.hashes, h)
	}
	return l
}

// Digest returns a string that distinguishes the list from other lists.
func (l List) Digest() string { return l.digest }

// hash is FNV-1a followed by mix, because the high bits of FNV-1a hardly depend on the last characters.
func hash(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h)
}

const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of splitmix64. It never maps two numbers to the same result.
func mix(h uint64) uint64 {
	h += golden
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
