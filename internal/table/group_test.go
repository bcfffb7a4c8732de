package table_test

import (
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

// Whichever rows of a group were deleted by hand, a member or a partition is seen as long as it has one, and candidates for
// other locks leave a partition alone as long as its lease row shows whose it is.
func TestWhateverRowsAreDeletedByHandTheOthersCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for deleted := range 1 << 4 {
			tab := table.Table{Store: &memstore.Store{}}
			member := join(t, tab, 7, "a", time.Minute)
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
			s, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{All: true})
			require.NoError(t, err)
			_, seen := s.Members[member.Name]
			assert.Equal(t, has(rows[0]) || has(rows[1]), seen, "the member, with %q", left)
			_, seen = s.Partitions[name]
			assert.Equal(t, has(rows[2]) || has(rows[3]), seen, "the partition, with %q", left)
			_, err = tab.LookAtLeases(t.Context(), time.Now(), name)
			assert.Equal(t, has(rows[3]), err != nil, "a candidate, with %q: %v", left, err)
		}
	})
}
