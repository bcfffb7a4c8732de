package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

// A member counts until it is evicted, however old its last heartbeat is. Otherwise members that look at different
// times would plan for different members, and a late heartbeat would move partitions twice.
func TestAMemberCountsUntilItIsEvicted(t *testing.T) {
	const lease = 10 * time.Second
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	list := NewList([]string{"x", "y"})
	member := func(slot int, heartbeat time.Time) table.Observation {
		return table.Observation{Name: table.SlotName("orders", slot), At: at, Exists: true, Heartbeat: heartbeat, Token: table.TokenAt(at.Add(-time.Hour)), Writer: "somebody",
			LeaseRecord: &table.LeaseRecord{ListDigest: list.Digest(), Lease: lease}}
	}
	s := table.GroupSnapshot{At: at, Members: map[string]table.Observation{}}
	for slot, heartbeat := range []time.Time{at, at.Add(-3 * lease), {}} { // renews, is silent, was evicted
		o := member(slot, heartbeat)
		s.Members[o.Name] = o
	}
	var slots []int
	for _, m := range (Planning{Setting: Setting{List: list, Lease: lease}}).After(s, true).members {
		slots = append(slots, m.Slot)
	}
	assert.Equal(t, []int{0, 1}, slots)
}
