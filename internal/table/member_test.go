package table_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A member that pauses partitions frees those whose rows name a term that is over, and marks what nobody holds. A member that
// reconciles frees what its own term is said to hold. Neither touches the rows of anybody else who may act: another member, another
// term of the same slot, or the holder of an ordinary lock with such a name.
func TestAMemberChangesNoRowsOfOthersWhoMayAct(t *testing.T) {
	ref := func(slot int, token table.Token) table.LeaseRef {
		return table.LeaseRef{Name: table.SlotName("orders", slot), Token: token}
	}
	me, former, later, live, dead := ref(3, 500), ref(3, 400), ref(3, 600), ref(4, 450), ref(5, 450)
	const token, ordinary = table.Token(700), `{"lease":"1h"}`
	of := func(m table.LeaseRef) string { return fmt.Sprintf(`{"with":%q,"for":"1h"}`, m.Key()) }
	type row struct {
		is     string // "": there is no lock row; "torn": the lease row has another token
		writer string
		lease  string // "": there is no lease row
	}
	// A lease row of a newer format is also left alone, because a newer version may hold it by different rules.
	for what, c := range map[string]struct {
		row
		paused, reconciled string // what the steps make of it
	}{
		"no row":                     {row{}, "named", ""},
		"an orphan lease of mine":    {row{lease: of(me)}, "named", "freed"},
		"an orphan lease of another": {row{lease: of(dead)}, "named", ""},
		"an orphan lease of before":  {row{lease: of(former)}, "named", ""},
		"released":                   {row{is: "free"}, "marked", ""},
		"withdrawn":                  {row{is: "free", writer: dead.Key()}, "marked", ""},
		"marked by another":          {row{is: "free", writer: live.Key()}, "marked", ""},
		"marked before":              {row{is: "free", writer: former.Key()}, "marked", ""},
		"marked":                     {row{is: "free", writer: me.Key()}, "named", ""},
		"held by me":                 {row{"held", me.Key(), of(me)}, "", "freed"},
		"mine, torn":                 {row{"torn", me.Key(), of(me)}, "", "freed"},
		"claimed by me":              {row{"claimed", me.Key(), ""}, "", "freed"},
		"held by another":            {row{"held", live.Key(), of(live)}, "", ""},
		"claimed by another":         {row{"claimed", live.Key(), ""}, "", ""},
		"held in a later term":       {row{"held", later.Key(), of(later)}, "", ""},
		"held by a dead one":         {row{"held", dead.Key(), of(dead)}, "freed", ""},
		"a newer format, it is dead": {row{"held", dead.Key(), `{"v":2}`}, "", ""},
		"claimed by a dead one":      {row{"claimed", dead.Key(), ""}, "freed", ""},
		"held before":                {row{"held", former.Key(), of(former)}, "freed", ""},
		"an ordinary lock":           {row{"held", "me", ordinary}, "", ""},
		"an ordinary claim":          {row{"claimed", "me", ""}, "", ""},
		"one that is leaving":        {row{"held", "", ordinary}, "", ""},
		"one whose holder is odd":    {row{"held", me.Name, ordinary}, "", ""},
	} {
		for _, beside := range []string{"", "released", "held by me"} { // the step changes something, or nothing
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				tab, names := table.Table{Store: store}, []string{table.PartitionName("orders", "p")}
				put := func(name string, heartbeat, token, writer any) {
					require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Put, Name: name, Set: []table.Cell{
						{Column: table.ColHeartbeat, Value: heartbeat}, {Column: table.ColToken, Value: token}, {Column: table.ColWriter, Value: writer}}}}))
				}
				heartbeat := map[string]any{"held": (token + 7).Time(), "torn": (token + 7).Time(), "claimed": token.Time()}
				if c.is != "" {
					put(names[0], heartbeat[c.is], token.Time(), c.writer)
				}
				if under := token; c.lease != "" {
					if c.is == "torn" {
						under--
					}
					put(table.LeaseKey(names[0], under), token.Time(), token.Time(), c.lease)
				}
				if beside != "" {
					names = append(names, table.PartitionName("orders", "q"))
					put(names[1], nil, token.Time(), nil)
				}
				if beside == "held by me" {
					put(names[1], (token + 7).Time(), token.Time(), me.Key())
				}
				r, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: names})
				require.NoError(t, err)
				var seen []table.Observation
				for _, name := range names {
					seen = append(seen, r.Partitions[name])
				}
				before := scene{store: store}.rowsOf(names[0])
				var now time.Time
				store.OnCommit = func(_ string, at time.Time, _, _ map[string]table.Row) { now = at }
				changed := func(made, writer string) {
					t.Helper()
					want := maps.Clone(before)
					row, exists := want[names[0]]
					switch {
					case made == "freed":
						want, row.Heartbeat, row.Token = map[string]table.Row{}, time.Time{}, now
						fallthrough
					case made == "marked":
						if row.Writer = writer; exists {
							want[names[0]] = row
						}
					}
					assert.Equal(t, want, scene{store: store}.rowsOf(names[0]), "%s beside one that is %s", what, beside)
				}
				err = tab.ReconcilePartitions(t.Context(), me, seen...)
				changes := c.reconciled != "" || beside == "held by me"
				assert.Equal(t, changes, err == nil, "%s beside one that is %s: %v", what, beside, err)
				changed(c.reconciled, "")
				if changes {
					return
				}
				marked, err := tab.MarkPaused(t.Context(), me, func(h table.LeaseRef) bool { return h == former || h == dead }, names...)
				require.NoError(t, err)
				changed(c.paused, me.Key())
				var want []string
				if c.paused != "" {
					want = names[:1:1]
				}
				assert.Equal(t, append(want, names[1:]...), marked, "%s beside one that is %s", what, beside)
			})
		}
	}
}
