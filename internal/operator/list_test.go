package operator_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

func TestEveryLockIsListedOnceWithItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		hold(t, tab, "b", time.Second)
		released := hold(t, tab, "c", time.Second)
		require.NoError(t, tab.Release(t.Context(), released, "c"))
		orphan := hold(t, tab, "o", time.Second)
		require.NoError(t, tab.Store.Commit(t.Context(), "test", []table.Write{{Kind: table.Delete, Name: "o"}}))
		broken := hold(t, tab, "u", time.Second)
		require.NoError(t, tab.Store.Commit(t.Context(), "test", []table.Write{{Kind: table.Update, Name: table.LeaseKey("u", broken),
			Set: []table.Cell{{Column: table.ColWriter, Value: "?"}}}}))
		time.Sleep(time.Second)
		claim(t, tab, "d")
		a := hold(t, tab, "a", time.Second)
		require.NoError(t, tab.Ask(t.Context(), table.ByPreference, "a_12", hold(t, tab, "a_12", time.Second))) // its lease row has no heartbeat

		all, _, err := operator.List(t.Context(), tab, "", true)
		require.NoError(t, err)
		states := map[string]operator.State{}
		for _, l := range all {
			states[l.Name] = l.State()
			one, err := operator.ListOne(t.Context(), tab, l.Name)
			require.NoError(t, err)
			assert.Equal(t, l.State(), one.State(), l.Name)
			assert.Equal(t, l.LeaseRecord, one.LeaseRecord, l.Name)
		}
		assert.Len(t, all, len(states))
		assert.Equal(t, map[string]operator.State{
			"a": operator.Held, "a_12": operator.Held, "b": operator.Expired, "c": operator.Released, "d": operator.Unconfirmed,
			"o": operator.Orphaned, "u": operator.Unreadable,
		}, states)
		assert.Equal(t, "a", all[0].Name)
		assert.Equal(t, a, all[0].Token)
		assert.Equal(t, "at a", all[0].LeaseRecord.Value)
		assert.Contains(t, all[len(all)-2].OrphanLeases, orphan)

		busy, _, err := operator.List(t.Context(), tab, "", false)
		require.NoError(t, err)
		assert.Len(t, busy, len(all)-1)
		for _, l := range busy {
			assert.Equal(t, states[l.Name], l.State(), l.Name)
			assert.NotEqual(t, operator.Released, l.State(), l.Name)
		}

		begins := func(prefix string) (names []string) {
			some, _, err := operator.List(t.Context(), tab, prefix, true)
			require.NoError(t, err)
			for _, l := range some {
				names = append(names, l.Name+" "+string(l.State()))
			}
			return names
		}
		assert.Equal(t, []string{"a held", "a_12 held"}, begins("a"))
		assert.Equal(t, []string{"a_12 held"}, begins("a_"), "a's lease row begins with a_, and a does not")
		assert.Equal(t, []string{"a_12 held"}, begins("a_12"), "the prefix itself is a name")
		assert.Empty(t, begins("ab"))

		none, err := operator.ListOne(t.Context(), tab, "none")
		require.NoError(t, err)
		assert.Equal(t, operator.Free, none.State())
	})
}

// A list of held locks includes the named locks with their states, even if they were released, and no other released
// lock.
func TestAListHasTheLocksThatAreNamed(t *testing.T) {
	tab := table.Table{Store: &memstore.Store{}}
	hold(t, tab, "held", time.Hour)
	for _, name := range []string{"released", "other", "job"} {
		require.NoError(t, tab.Release(t.Context(), hold(t, tab, name, time.Hour), name))
	}
	require.NoError(t, tab.Finish(t.Context(), hold(t, tab, "job", time.Hour), 0, "job", table.Due{Key: "7"}, "a"))
	wait(t, tab, "wanted", "w")
	states := func(named ...string) (all []string) {
		found, _, err := operator.ListWith(t.Context(), tab, "", false, named...)
		require.NoError(t, err)
		for _, l := range found {
			all = append(all, fmt.Sprint(l.Name, " ", l.State(), " ", l.Done.Key, len(l.Waiters)))
		}
		return all
	}
	assert.Equal(t, []string{"held held 0", "job free 70", "wanted free 1"}, states())
	assert.Equal(t, []string{"held held 0", "job released 70", "never free 0", "released released 0", "wanted free 1"},
		states("released", "never", "held", "wanted", "job", "released"))
}

// The kind of a lock is recorded in its lease row, and can partly be derived from the rows of earlier versions. Older
// programs ignore it.
func TestALockSaysWhatItIsFor(t *testing.T) {
	tab := table.Table{Store: &memstore.Store{}}
	for _, is := range []struct {
		name string
		p    table.LeaseRecord
		want table.LockKind
	}{
		{"a", table.LeaseRecord{Kind: table.Elector}, table.Elector},
		{"b", table.LeaseRecord{}, ""},
		{"c", table.LeaseRecord{Nonce: "n"}, table.Mutex},
		{"c/slot/0001", table.LeaseRecord{Slots: 3}, table.Semaphore},
		{"d", table.LeaseRecord{Kind: "of a later version"}, "of a later version"},
		{"orders/member/0001", table.LeaseRecord{ListDigest: "p", Kind: table.Elector}, table.GroupPart},
	} {
		is.p.Lease = time.Minute
		require.NoError(t, tab.Confirm(t.Context(), claim(t, tab, is.name), is.p, is.name))
		l, err := operator.ListOne(t.Context(), tab, is.name)
		require.NoError(t, err)
		assert.Equal(t, operator.Held, l.State())
		assert.Equal(t, is.want, l.Kind(), is.name)
	}
	token := hold(t, tab, "m", time.Minute)
	require.NoError(t, tab.ReleaseFree(t.Context(), token, time.Minute, "m"))
	l, err := operator.ListOne(t.Context(), tab, "m")
	require.NoError(t, err)
	assert.Equal(t, table.Mutex, l.Kind(), "its free row tells")
	require.NoError(t, tab.ReleaseFree(t.Context(), hold(t, tab, "s/slot/0000", time.Minute), time.Minute, "s/slot/0000"))
	l, err = operator.ListOne(t.Context(), tab, "s/slot/0000")
	require.NoError(t, err)
	assert.Equal(t, table.Semaphore, l.Kind(), "its name tells, too")
}

// A list without released locks has left out their lock rows, so a lease row that was left behind by mistake is not
// reported as an orphan.
func TestAReleasedLockWithALeaseRowIsReleased(t *testing.T) {
	store := &memstore.Store{}
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	var writes []table.Write
	for _, name := range []string{"released", table.LeaseKey("released", table.TokenAt(at)), table.LeaseKey("lost", table.TokenAt(at))} {
		writes = append(writes, table.Write{Kind: table.Put, Name: name, Set: []table.Cell{{Column: table.ColToken, Value: at}}})
	}
	for _, i := range []int{1, 2} {
		writes[i].Set = append(writes[i].Set, table.Cell{Column: table.ColWriter, Value: `{"v":1,"lease":"10s","id":"a"}`})
	}
	require.NoError(t, store.Commit(t.Context(), "test", writes))
	found, _, err := operator.List(t.Context(), table.Table{Store: store}, "", false)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "lost", found[0].Name)
	assert.Equal(t, operator.Orphaned, found[0].State())
}

// A lease that has run out is expired, whatever its holder did last: who died while it was leaving, or after it was asked to, holds
// nothing.
func TestALeaseThatHasRunOutIsExpired(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, writer := range []string{"a", ""} { // a leaving holder is not named
		for ago, held := range map[time.Duration]bool{0: true, 10*time.Second - 1: true, 10 * time.Second: false, time.Hour: false} {
			l := operator.Listing{Observation: table.Observation{Name: "a", Exists: true, At: now, Token: table.TokenAt(now.Add(-2 * time.Hour)),
				Heartbeat: now.Add(-ago), Writer: writer, LeaseRecord: &table.LeaseRecord{ID: "a", Lease: 10 * time.Second}}}
			assert.Equal(t, held, l.IsHeld(), "written by %q %v ago", writer, ago)
			assert.Equal(t, !held, l.State() == operator.Expired, "written by %q %v ago", writer, ago)
		}
	}
}
