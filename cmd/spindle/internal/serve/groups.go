package serve

import "github.com/spindle-lock/spindle/internal/table"

var byGroup = []string{"table", "group"}

// A group has as many series with a thousand partitions as with one.
var (
	descMembers    = describe("spindle_table_group_members", "Members of the group that were heard from within their leases.", byGroup...)
	descPartitions = describe("spindle_table_group_partitions", "Partitions of the group that have a row, by state.", "table", "group", "state")
	descNobody     = describe("spindle_table_group_partitions_without_holder", "Partitions of the group that have a row, and no member.", byGroup...)
)

// noneInAnyState returns a count of 0 for each state that a row can be in: a series that comes and goes with its count
// would have gaps where it should be 0.
func noneInAnyState() map[table.State]int {
	return map[table.State]int{table.Held: 0, table.Leaving: 0, table.Expired: 0, table.Released: 0, table.Unconfirmed: 0, table.Orphaned: 0, table.Unreadable: 0}
}

// A group has the counts of a group.
type group struct {
	members    int // that are there
	partitions map[table.State]int
	nobody     int // partitions without a member
}

func newGroup() *group { return &group{partitions: noneInAnyState()} }

// add counts a member or a partition.
func (g *group) add(part table.Part, k *lock) {
	held := k.IsHeld()
	if part.Partition == "" {
		if held {
			g.members++
		}
		return
	}
	g.partitions[k.State()]++
	if !held {
		g.nobody++
	}
}
