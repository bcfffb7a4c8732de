package table_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A member reconciles a partition whose lock row was deleted by hand. It leaves the lease rows of other members, which
// may still act on the partition, so their fences still hold.
func TestAMemberFreesNothingOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab, name := table.Table{Store: store}, table.PartitionName("orders", "p")
		own, other := join(t, tab, 0, "own", time.Minute), join(t, tab, 1, "other", time.Minute)
		orphan := func(m table.LeaseRef) string {
			token := take(t, tab, m, time.Minute, "p")
			drop(t, tab, name)
			return table.LeaseKey(name, token)
		}
		mine := orphan(own)
		row := store.Rows()[mine]
		drop(t, tab, mine)
		theirs := orphan(other)
		require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Insert, Name: mine, Set: []table.Cell{
			{Column: table.ColHeartbeat, Value: row.Heartbeat}, {Column: table.ColToken, Value: row.Token}, {Column: table.ColWriter, Value: row.Writer}}}}))
		r, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: []string{name}})
		require.NoError(t, err)
		require.Len(t, r.Partitions[name].OrphanLeases, 2)
		require.NoError(t, tab.ReconcilePartitions(t.Context(), own, r.Partitions[name]))
		assert.NotContains(t, store.Rows(), mine)
		assert.Contains(t, store.Rows(), theirs)

		drop(t, tab, theirs)
		held := take(t, tab, other, time.Minute, "p")
		r, err = tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: []string{name}})
		require.NoError(t, err)
		require.ErrorIs(t, tab.ReconcilePartitions(t.Context(), own, r.Partitions[name]), table.ErrChanged)
		assert.Contains(t, store.Rows(), table.LeaseKey(name, held))
	})
}

// A transaction reads the lease rows of terms that began up to an hour after the look. A later claim fails, because it
// could otherwise overlook the holder of a lock whose row was deleted by hand.
func TestAClaimLongAfterItsLookGivesNothing(t *testing.T) {
	const name = "orders/partition/p"
	for how, attempt := range map[string]func(t *testing.T, tab table.Table, m table.LeaseRef, o table.Observation) error{
		"Claim": func(t *testing.T, tab table.Table, _ table.LeaseRef, o table.Observation) error {
			_, err := tab.Claim(t.Context(), "me", o)
			return err
		},
		"ClaimPartitions": func(t *testing.T, tab table.Table, m table.LeaseRef, o table.Observation) error {
			_, _, err := tab.ClaimPartitions(t.Context(), m, o)
			return err
		},
	} {
		for after, free := range map[time.Duration]bool{55 * time.Minute: true, 2 * time.Hour: false} {
			synctest.Test(t, func(t *testing.T) {
				tab := table.Table{Store: &memstore.Store{}}
				own, other := join(t, tab, 0, "own", 24*time.Hour), join(t, tab, 1, "other", 24*time.Hour)
				look := func() table.Observation {
					seen, err := tab.LookAtLeases(t.Context(), time.Now(), name)
					require.NoError(t, err)
					return seen[0]
				}
				seen := look()
				time.Sleep(after)
				if free {
					assert.NoError(t, attempt(t, tab, own, seen), "%s after %v", how, after)
					drop(t, tab, name)
					seen = look()
					time.Sleep(after)
				}
				take(t, tab, other, 24*time.Hour, "p")
				drop(t, tab, name)
				assert.ErrorIs(t, attempt(t, tab, own, seen), table.ErrChanged, "%s after %v, and another has it", how, after)
			})
		}
	}
}

// A member whose heartbeat was committed after the look is not evicted, but the other expired members are.
func TestAMemberThatWasHeardFromIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		dead, alive := join(t, tab, 0, "dead", time.Second), join(t, tab, 1, "alive", time.Second)
		time.Sleep(2 * time.Second)
		s, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{Members: true})
		require.NoError(t, err)
		require.NoError(t, tab.Heartbeat(t.Context(), alive.Token, alive.Name))
		freed, err := tab.EvictMembers(t.Context(), s.Members[alive.Name], s.Members[dead.Name])
		require.NoError(t, err)
		assert.Equal(t, []string{dead.Name}, freed)
		require.NoError(t, tab.Heartbeat(t.Context(), alive.Token, alive.Name))
		require.ErrorIs(t, tab.Heartbeat(t.Context(), dead.Token, dead.Name), table.ErrSuperseded)
		_, err = tab.EvictMembers(t.Context(), s.Members[alive.Name])
		assert.ErrorIs(t, err, table.ErrChanged)
	})
}

// Nothing changes the partitions of a member whose lease row is gone, whatever it still has in flight: they belong to others, which
// may already act on them.
func TestAMemberThatIsGoneConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab, name := table.Table{Store: store}, table.PartitionName("orders", "p")
		own := join(t, tab, 0, "own", time.Minute)
		take(t, tab, own, time.Minute, "other")
		seen, err := tab.LookAtLeases(t.Context(), time.Now(), name)
		require.NoError(t, err)
		token, _, err := tab.ClaimPartitions(t.Context(), own, seen[0])
		require.NoError(t, err)
		drop(t, tab, own.Key())
		before := store.Rows()
		_, err = tab.ConfirmPartitions(t.Context(), own, table.LeaseRecord{Lease: time.Minute}, token, name)
		assert.ErrorIs(t, err, table.ErrMissing)
		assert.Equal(t, before, store.Rows())
	})
}
