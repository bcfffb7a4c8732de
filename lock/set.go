package lock

import (
	"fmt"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// Set is several locks that are taken all at once or not at all, in one transaction, under one token, and are renewed
// and given back together. Callers may ask for overlapping sets in any order: nobody holds a part of a set while
// waiting for the rest, so there is no deadlock.
type Set struct{ mutex }

// All returns a Set of the names, each of which may be a Mutex or a spindle.Lock elsewhere. There are 1 to 500 names,
// none twice, which are claimed in one transaction. Each lock gets a copy of the value: names and values together must
// fit into a commit, of 100 MiB. Otherwise All is like New.
func All(db *spanner.Client, tableName string, names []string, opts ...spindle.Option) *Set {
	names = slices.Sorted(slices.Values(names))
	return &Set{mutex{contender: newContender(db, tableName, fmt.Sprintf("set %.200q", names), names, opts, refuseSet(names)), names: names}}
}

const (
	maxSet = 500

	// maxCommit leaves a tenth of the 100 MiB that Spanner takes in one commit for what is not counted here. The other
	// limit, 80,000 mutations, is far: a confirmation needs six for each name.
	maxCommit = 90 << 20

	rowOverhead = 512 // of the two rows of a name: columns, times, the table's name, the encoding
)

// confirmation returns about how many bytes the confirmation of a set has.
func confirmation(names []string, p table.LeaseRecord) int {
	size := len(names) * (p.Size() + rowOverhead)
	for _, name := range names {
		size += 2 * len(name)
	}
	return size
}

func refuseSet(names []string) func(*options.Config) {
	return func(c *options.Config) {
		switch {
		case len(names) == 0:
			c.Refuse("the set is empty: give it at least one name")
		case len(names) > maxSet:
			c.Refuse("the set has %d names: at most %d are allowed", len(names), maxSet)
		}
		for i := 1; i < len(names); i++ {
			if names[i] == names[i-1] {
				c.Refuse("the set has %q twice", names[i])
			}
		}
		if size := confirmation(names, table.LeaseRecord{Lease: c.Lease, Value: c.Value, Kind: table.Mutex}); size > maxCommit {
			c.Refuse("the set has %d names with a value of %d bytes, escaped, for each: one commit would be %d MiB, and at most %d are allowed: shorten WithValue, or take fewer names",
				len(names), table.LeaseRecord{Value: c.Value}.Size(), size>>20, maxCommit>>20)
		}
	}
}

// Fence returns mutations that change nothing and let a commit succeed only while every lock of the set is held under
// its present token: see Mutex.Fence.
func (s *Set) Fence() []*spanner.Mutation {
	return s.contender.fence(s.Token(), s.names...).Mutations()
}
