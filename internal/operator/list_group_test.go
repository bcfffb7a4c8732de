package operator_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A partition is held, leaving, expired, unreadable or free if its member is, regardless of which rows of the group are
// read. If a partition of a member with a newer format were shown as unconfirmed, nobody would learn to update the command.
func TestAPartitionIsListedAsItsMemberIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		const lease = 10 * time.Second
		dead := join(t, tab, 3, "dead", lease)
		take(t, tab, dead, lease, "of-expired")
		released, again := join(t, tab, 4, "released", lease), join(t, tab, 5, "before", lease)
		take(t, tab, released, lease, "of-released")
		take(t, tab, again, lease, "of-another")
		pause := func(m table.LeaseRef, partition string) {
			name := table.PartitionName("orders", partition)
			require.NoError(t, tab.ReleasePartitions(t.Context(), table.LeaseRef{Name: name, Token: take(t, tab, m, lease, partition)}))
			_, err := tab.MarkPaused(t.Context(), m, func(table.LeaseRef) bool { return false }, name)
			require.NoError(t, err)
		}
		pause(again, "paused-in-an-earlier-term")
		claimFor(t, tab, released, "bare-of-released")
		require.NoError(t, tab.Release(t.Context(), released.Token, released.Name))
		require.NoError(t, tab.Release(t.Context(), again.Token, again.Name))
		erased := join(t, tab, 6, "erased", lease)
		take(t, tab, erased, lease, "of-erased")
		drop(t, tab, erased.Name, erased.Key())
		time.Sleep(lease)
		join(t, tab, 5, "after", lease)
		live, leaver, broken := join(t, tab, 0, "live", lease), join(t, tab, 1, "leaver", lease), join(t, tab, 2, "broken", lease)
		token := take(t, tab, live, lease, "held", "given", "orphan", "no-lease-row")
		take(t, tab, leaver, lease, "leaving")
		take(t, tab, broken, lease, "of-broken")
		claimFor(t, tab, live, "bare")
		pause(live, "paused")
		require.NoError(t, tab.Announce(t.Context(), leaver.Token, leaver.Name))
		require.NoError(t, tab.ReleasePartitions(t.Context(), table.LeaseRef{Name: table.PartitionName("orders", "given"), Token: token}))
		drop(t, tab, table.PartitionName("orders", "orphan"), table.LeaseKey(table.PartitionName("orders", "no-lease-row"), token), broken.Key())
		newer, garbled := join(t, tab, 7, "newer", lease), join(t, tab, 8, "garbled", lease)
		take(t, tab, newer, lease, "of-newer")
		take(t, tab, garbled, lease, "of-garbled")
		for m, record := range map[table.LeaseRef]string{newer: `{"v":99,"lease":"10s"}`, garbled: "?"} {
			require.NoError(t, tab.Store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Update, Name: m.Key(), Set: []table.Cell{{Column: table.ColWriter, Value: record}}}}))
		}
		hold(t, tab, "orders/partition/plain", lease)
		time.Sleep(lease / 2)
		require.NoError(t, tab.Heartbeat(t.Context(), live.Token, live.Name))

		type line struct {
			state  operator.State
			holder string
			member string
		}
		want := map[string]line{
			"held": {operator.Held, "live", live.Name}, "leaving": {operator.Leaving, "leaver", leaver.Name},
			"of-expired": {operator.Expired, "dead", dead.Name}, "of-released": {operator.Released, "", released.Name},
			"bare-of-released": {operator.Released, "", released.Name}, "of-another": {operator.Released, "", again.Name},
			"of-erased": {operator.Orphaned, "", erased.Name}, "of-broken": {operator.Unconfirmed, "broken", broken.Name},
			"bare": {operator.Unconfirmed, "live", live.Name}, "no-lease-row": {operator.Unconfirmed, "live", live.Name},
			"given": {operator.Released, "", ""}, "orphan": {operator.Orphaned, "", ""},
			"paused": {operator.Paused, "", live.Name}, "paused-in-an-earlier-term": {operator.Released, "", ""},
			"of-newer": {operator.Unreadable, "newer", newer.Name}, "of-garbled": {operator.Unreadable, "garbled", garbled.Name},
			"plain": {operator.Held, "orders/partition/plain's holder", ""},
		}
		for _, prefix := range []string{"", "orders", "orders/", "orders/p", "orders/partition/"} {
			for _, all := range []bool{true, false} {
				found, _, err := operator.List(t.Context(), tab, prefix, all)
				require.NoError(t, err)
				n := 0
				for _, l := range found {
					if part, _ := table.PartOf(l.Name); part.Partition != "" {
						n++
						assert.Equal(t, want[part.Partition], line{l.State(), l.Holder(), l.Member.Name}, "%s of %q", l.Name, prefix)
						assert.Equal(t, part.Partition != "plain", l.IsPart(), l.Name)
					}
				}
				assert.Equal(t, len(want), n, "%q", prefix)
				if prefix != "" && prefix != "orders" && prefix != "orders/" {
					assert.Len(t, found, n, "only what begins so")
				}
			}
		}
		for partition, w := range want {
			one, err := operator.ListOne(t.Context(), tab, table.PartitionName("orders", partition))
			require.NoError(t, err)
			assert.Equal(t, w, line{one.State(), one.Holder(), one.Member.Name}, partition)
		}
		one, err := operator.ListOne(t.Context(), tab, table.PartitionName("orders", "held"))
		require.NoError(t, err)
		assert.Equal(t, token, one.Token, "its own")
		assert.Zero(t, one.At.Sub(one.Heartbeat), "its member's")
		assert.Equal(t, "at live", one.LeaseRecord.Value)
	})
}

// A partition counts as paused only while the member that has paused it is alive.
func TestAPartitionIsPausedWhileItsMemberLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, name := table.Table{Store: &memstore.Store{}}, table.PartitionName("orders", "p")
		me := join(t, tab, 0, "me", 10*time.Second)
		require.NoError(t, tab.ReleasePartitions(t.Context(), table.LeaseRef{Name: name, Token: take(t, tab, me, 10*time.Second, "p")}))
		_, err := tab.MarkPaused(t.Context(), me, func(table.LeaseRef) bool { return false }, name)
		require.NoError(t, err)
		state := func() operator.State {
			one, err := operator.ListOne(t.Context(), tab, name)
			require.NoError(t, err)
			return one.State()
		}
		assert.Equal(t, operator.Paused, state())
		require.NoError(t, tab.Announce(t.Context(), me.Token, me.Name))
		assert.Equal(t, operator.Paused, state())
		time.Sleep(10*time.Second + time.Millisecond)
		assert.Equal(t, operator.Released, state(), "its lease has expired")
	})
}

// The listing of a group has its own members and partitions, and is the same as that of all locks in these.
func TestTheListingOfAGroupIsThatOfItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		me := join(t, tab, 0, "me", time.Minute)
		take(t, tab, me, time.Minute, "a", "garbled", "given")
		for _, name := range []string{"orders", "orders2/member/0000", "ord/partition/a", "m"} {
			hold(t, tab, name, time.Minute)
		}
		name := table.PartitionName("orders", "garbled")
		seen, err := tab.Observe(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, tab.Store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Update, Name: table.LeaseKey(name, seen[0].Token), Set: []table.Cell{{Column: table.ColWriter, Value: "?"}}}}))
		all, _, err := operator.List(t.Context(), tab, "", true)
		require.NoError(t, err)
		all = slices.DeleteFunc(all, func(l operator.Listing) bool { part, _ := table.PartOf(l.Name); return part.Group != "orders" })
		group, at, err := operator.ListGroup(t.Context(), tab, "orders")
		require.NoError(t, err)
		require.False(t, at.IsZero())
		require.Len(t, group, 4)
		for i, l := range group {
			assert.Equal(t, fmt.Sprint(l.Name, l.State(), l.Holder(), l.Member, l.Token), fmt.Sprint(all[i].Name, all[i].State(), all[i].Holder(), all[i].Member, all[i].Token))
			if l.Name == name {
				assert.Equal(t, operator.Unreadable, l.State(), "it is not known who may act on it")
				assert.Zero(t, l.Member)
			}
		}
	})
}
