package serve

import (
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

var byGroup = []string{"table", "group"}

// The number of series of a group does not depend on the number of its partitions.
var (
	descMembers    = describe("spindle_table_group_members", "Members of the group whose leases have not expired.", byGroup...)
	descPartitions = describe("spindle_table_group_partitions", "Partitions of the group that have a row in the table, by state.", "table", "group", "state")
	descNobody     = describe("spindle_table_group_partitions_without_holder", "Partitions of the group that have a row in the table but no holder, without those that are paused.", byGroup...)
)

// noneInAnyState returns a count of 0 for every state that a row can be in. If states with a count of 0 were left out,
// their series would disappear, and graphs would have gaps.
func noneInAnyState() map[operator.State]int {
	return map[operator.State]int{operator.Held: 0, operator.Leaving: 0, operator.Expired: 0, operator.Released: 0, operator.Paused: 0, operator.Unconfirmed: 0, operator.Orphaned: 0, operator.Unreadable: 0}
}

// A group has the numbers of members and partitions of one group.
type group struct {
	members    int // that hold their slots
	partitions map[operator.State]int
	nobody     int // partitions without a member, which no program has paused
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
	if !held && k.State() != operator.Paused {
		g.nobody++
	}
}
