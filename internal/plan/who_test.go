package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

// A member whose row has vanished may act until its lease expires. If the row was there meanwhile, or a newer lease row shows
// that the slot had another member, the wait begins again.
func TestARowThatVanishesAgainIsWaitedForAgain(t *testing.T) {
	const lease = 10 * time.Second
	m, now := NewMemory("orders", lease), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	with := table.LeaseRef{Name: table.SlotName("orders", 1), Token: table.TokenAt(now)}
	partition := table.Observation{Name: table.PartitionName("orders", "0"), Exists: true, Heartbeat: now, Writer: with.Key()}
	look := func(o table.Observation) (missing, vanished time.Duration) {
		now = now.Add(time.Second)
		s := table.GroupSnapshot{At: now, Members: map[string]table.Observation{with.Name: o}, Partitions: map[string]table.PartitionRow{partition.Name: {Observation: partition}}}
		m.Learn(s)
		newest := table.LeaseRef{Name: with.Name}
		for newest.Token = range o.OrphanLeases {
		}
		m.waitsFor(s, with.Name, true)
		return s.At.Sub(m.Missing[with]), s.At.Sub(m.Missing[newest])
	}
	leases := func(n table.Token) table.Observation {
		return table.Observation{OrphanLeases: map[table.Token]table.LeaseRecord{with.Token + n: {Lease: lease}}}
	}
	for range 2 {
		for i := range 3 {
			missing, vanished := look(table.Observation{})
			assert.Equal(t, time.Duration(i)*time.Second, missing)
			assert.Equal(t, time.Duration(i)*time.Second, vanished)
		}
		look(table.Observation{Name: with.Name, Exists: true, Token: with.Token, Heartbeat: now})
	}
	for i, newest := range []table.Token{1, 1, 2, 2} {
		_, vanished := look(leases(newest))
		assert.Equal(t, time.Duration(i%2)*time.Second, vanished, "a newer lease row")
	}
}
