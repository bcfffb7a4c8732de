package table_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// The name of a group's lock says which one it is, whatever characters are in the names of its group and its partition.
func TestTheNameOfAGroupsLockIsReadBack(t *testing.T) {
	words := []string{""}
	for begin := 0; len(words) < 1000; { // all short words over these characters
		end := len(words)
		for _, word := range words[begin:end] {
			for _, c := range []string{"a", "+", "%", "/", "_", " ", "2B", "é", "!"} {
				words = append(words, word+c)
			}
		}
		begin = end
	}
	known := map[string]string{}
	for _, word := range words[1:] {
		for _, want := range []table.Part{{Group: "g", Partition: word}, {Group: word, Partition: "p"}, {Group: word, Slot: 1}, {Group: word, Slot: table.MaxSlot}} {
			name := table.SlotName(want.Group, want.Slot)
			if want.Partition != "" {
				name = table.PartitionName(want.Group, want.Partition)
			}
			got, ok := table.PartOf(name)
			assert.True(t, ok, name)
			assert.Equal(t, want, got, name)
			key := table.LeaseRef{Name: name, Token: 1700000000000000}.Key()
			role, of := table.RoleOf(key)
			assert.Equal(t, table.OfLease, role, key)
			assert.Equal(t, name, of, key)
			_, ok = table.PartOf(key)
			assert.False(t, ok, key)
			if want.Partition == "" {
				ref, ok := table.MemberOf(key)
				assert.True(t, ok, key)
				assert.Equal(t, table.LeaseRef{Name: name, Token: 1700000000000000}, ref)
			}
			if is := fmt.Sprint(want); known[name] != "" {
				assert.Equal(t, known[name], is, name)
			} else {
				known[name] = is
			}
		}
	}
}

// Whichever rows of a group were deleted by hand, a member of any slot or a partition is seen as long as it has one, and candidates for
// other locks leave a partition alone as long as its lease row shows whose it is.
func TestWhateverRowsAreDeletedByHandTheOthersCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := range 3 << 4 {
			tab, deleted := table.Table{Store: &memstore.Store{}}, n&15
			member := join(t, tab, []int{0, 7, table.MaxSlot}[n>>4], "a", time.Minute)
			token := take(t, tab, member, time.Minute, "p")
			name := table.PartitionName("orders", "p")
			rows := []string{member.Name, member.Key(), name, table.LeaseKey(name, token)}
			var left []string
			for i, row := range rows {
				if deleted>>i&1 == 1 {
					drop(t, tab, row)
				} else {
					left = append(left, row)
				}
			}
			has := func(row string) bool { return slices.Contains(left, row) }
			for _, q := range []table.GroupQuery{{All: true}, {Members: true, WithLeases: []string{name}}} {
				s, err := tab.LookAtGroup(t.Context(), "orders", q)
				require.NoError(t, err)
				m, seen := s.Members[member.Name]
				assert.Equal(t, has(rows[0]) || has(rows[1]), seen, "the member, with %q", left)
				assert.Equal(t, has(rows[1]), m.LeaseRecord != nil || len(m.OrphanLeases) == 1, "the member's lease row, with %q", left)
				p, seen := s.Partitions[name]
				assert.Equal(t, has(rows[2]) || has(rows[3]) || !q.All, seen, "the partition, with %q", left)
				assert.Equal(t, has(rows[3]), p.LeaseRecord != nil || len(p.OrphanLeases) == 1, "the partition's lease row, with %q", left)
			}
			_, err := tab.LookAtLeases(t.Context(), time.Now(), name)
			assert.Equal(t, has(rows[3]), err != nil, "a candidate, with %q: %v", left, err)
		}
	})
}

// asked remembers the keys of the last read.
type asked struct {
	table.Store
	keys table.Keys
}

func (a *asked) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	a.keys = keys
	return a.Store.Read(ctx, step, bound, keys)
}

// What a member finds of a partition does not depend on how many others it asks for in the same poll, or on which rows
// of other groups it reads besides.
func TestAPollOfManyPartitionsFindsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab := table.Table{Store: store}
		me := join(t, tab, 3, "me", time.Hour)
		var names []string
		for i := range 2001 {
			names = append(names, table.PartitionName("orders", fmt.Sprint(i)))
		}
		for _, edge := range []string{"!", "~", "~~", "é", "\U0010ffff"} { // the names that sort first and last
			take(t, tab, me, time.Hour, edge)
			names = append(names, table.PartitionName("orders", edge))
		}
		take(t, tab, me, time.Hour, "0", "7", "1999", "2000", "elsewhere")
		drop(t, tab, names[7])
		foreign := table.SlotName("other", 1)
		hold(t, tab, foreign, time.Hour)
		look := func(names ...string) table.GroupSnapshot {
			b := table.Beside{Names: []string{foreign}}
			s, err := tab.Beside(&b).LookAtGroup(t.Context(), "orders", table.GroupQuery{Members: true, Leases: []table.LeaseRef{me}, WithLeases: names})
			require.NoError(t, err)
			require.Len(t, s.Members, 1)
			require.Contains(t, s.Members, me.Name)
			require.True(t, s.LeaseExists[me])
			require.Len(t, s.Partitions, len(names))
			return s
		}
		noted := &asked{Store: store}
		_, err := table.Table{Store: noted}.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: names})
		require.NoError(t, err)
		assert.Len(t, noted.keys.Ranges, 1, "thousands of ranges would make the poll slow")
		all, most := look(names...), look(names[1:]...)
		require.Len(t, all.Partitions, len(names))
		for _, name := range names {
			one := look(name).Partitions[name]
			many := all.Partitions[name]
			one.At, many.At = time.Time{}, time.Time{}
			assert.Equal(t, one, many, name)
			if o, found := most.Partitions[name]; found {
				o.At = time.Time{}
				assert.Equal(t, one, o, name)
			}
		}
		assert.Len(t, all.Partitions[names[7]].OrphanLeases, 1)
		assert.NotNil(t, all.Partitions[names[2000]].LeaseRecord)
	})
}

// A mark stays until its partition is claimed. Without it, the members of a group would assign the partition again to
// the program that has paused it. A partition that is marked already costs no further commit.
func TestAMarkOfAPausedPartitionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab, name := table.Table{Store: store}, table.PartitionName("orders", "p")
		me, other := join(t, tab, 0, "me", time.Hour), join(t, tab, 1, "other", time.Hour)
		over := func(table.LeaseRef) bool { return true }
		take(t, tab, other, time.Hour, "p")
		marked, err := tab.MarkPaused(t.Context(), me, func(h table.LeaseRef) bool { return h != other }, name)
		require.NoError(t, err)
		assert.Empty(t, marked, "another member holds it")
		for range 2 {
			marked, err = tab.MarkPaused(t.Context(), me, over, name, "without a row")
			require.NoError(t, err)
			assert.Equal(t, []string{name, "without a row"}, marked)
		}
		before := store.Rows()
		assert.Equal(t, me.Key(), before[name].Writer)
		commits := 0
		store.OnCommit = func(string, time.Time, map[string]table.Row, map[string]table.Row) { commits++ }
		_, err = tab.MarkPaused(t.Context(), me, over, name)
		require.NoError(t, err)
		assert.Zero(t, commits)
		r, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: []string{name}})
		require.NoError(t, err)
		require.ErrorIs(t, tab.ReconcilePartitions(t.Context(), me, r.Partitions[name]), table.ErrChanged)
		assert.Equal(t, before, store.Rows())
		take(t, tab, other, time.Hour, "p")
		assert.Equal(t, other.Key(), store.Rows()[name].Writer)
	})
}

// A plan replaces exactly the one that its publisher has read, head and body in one commit, and a body that does not belong to the head
// is none: a member that went by an older plan would take partitions that are now others'.
func TestAPlanReplacesTheOneThatItsPublisherHasRead(t *testing.T) {
	store := &memstore.Store{}
	tab := table.Table{Store: store}
	published := []table.Token{0}
	for n := range 4 {
		for i, seen := range append(published, published[n]+1) {
			if i == n {
				continue
			}
			_, err := tab.PublishPlan(t.Context(), "orders", seen, "late", "late")
			assert.ErrorIs(t, err, table.ErrChanged, "plan %d, of %v", n, published)
		}
		by, body := fmt.Sprint("by ", n), fmt.Sprint("body ", n)
		token, err := tab.PublishPlan(t.Context(), "orders", published[n], by, body)
		require.NoError(t, err)
		published = append(published, token)
		assert.Equal(t, by, store.Rows()["orders/!plan"].Writer)
		for _, q := range []table.GroupQuery{{}, {Body: true}, {All: true}, {Members: true}} {
			s, err := tab.LookAtGroup(t.Context(), "orders", q)
			require.NoError(t, err)
			assert.Equal(t, token, s.Plan)
			assert.Equal(t, q.Body || q.All, s.Body == body)
			assert.Equal(t, q.Members || q.All, s.Members != nil)
		}
	}
	require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Update, Name: "orders/!plan", Set: []table.Cell{{Column: table.ColToken, Value: table.Now}}}}))
	s, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{Body: true})
	require.NoError(t, err)
	assert.Empty(t, s.Body)
}
