package lock

import (
	"fmt"
	"runtime"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// A Set contains locks that are acquired together or not at all, under one token. They are also renewed and released
// together. No caller holds part of a set while it waits for the rest. Callers that ask for overlapping sets therefore
// can't deadlock, whatever the order of the names.
type Set struct{ mutex }

// All returns a Set of the given names. Each name can also be used by a Mutex or a spindle.Lock. There must be 1 to 500
// names, all different. Each lock gets a copy of the value (spindle.WithValue). Together, the names and the copies of
// the value may take at most about 90 MiB in the table, because one commit writes all of them. In all other respects,
// All is like New.
func All(db *spanner.Client, tableName string, names []string, opts ...Option) *Set {
	names = slices.Sorted(slices.Values(names))
	s := &Set{newMutex(newContender(db, tableName, fmt.Sprintf("set %.200q", names), names, opts, refuseSet(names)), names...)}
	runtime.AddCleanup(s, forget, s.garbage)
	return s
}

const (
	maxSet = 500

	// maxCommit is a tenth less than the 100 MiB that Spanner accepts in one commit, to leave room for data that is not
	// counted here. A set never reaches Spanner's other limit, 80,000 mutations per commit, because even a claim needs at
	// most a few dozen per name.
	maxCommit = 90 << 20

	rowOverhead = 512 // bytes for the two rows of each name: columns, times, the table's name, the encoding
)

// confirmation returns the approximate size, in bytes, of the commit that confirms a set.
func confirmation(names []string, p table.LeaseRecord) int {
	size := len(names) * (p.Size() + rowOverhead)
	for _, name := range names {
		size += 2 * len(name)
	}
	return size
}

func refuseSet(names []string) func(*options.Config) {
	return func(c *options.Config) {
		c.Require(len(names) > 0, "the set is empty; it needs at least one name")
		c.Require(len(names) <= maxSet, "the set has %d names; at most %d are allowed", len(names), maxSet)
		for i := 1; i < len(names); i++ {
			c.Require(names[i] != names[i-1], "the set contains %q twice", names[i])
		}
		if size := confirmation(names, table.LeaseRecord{Lease: c.Lease, Value: c.Value, Kind: table.Mutex}); size > maxCommit {
			c.Refuse("the set has %d names, each with a value of %d bytes when escaped, so its commit would take more than %d MiB, but at most %d MiB are allowed; shorten the value, or use fewer names",
				len(names), table.LeaseRecord{Value: c.Value}.Size(), size>>20, maxCommit>>20)
		}
	}
}

// Fence returns mutations that change nothing, but make a commit fail unless every lock of the set is still held under
// the set's current token. See Mutex.Fence.
func (s *Set) Fence() []*spanner.Mutation {
	return s.fence().Mutations()
}
