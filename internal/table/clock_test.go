package table_test

import (
	"fmt"
	"maps"
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

// readsOf returns the number of reads since the last call. The link carries no other requests.
func readsOf(link *memstore.Link) (n int) {
	for _, count := range link.Counts() {
		n += count
	}
	return n
}

// leased returns the tokens of the lease rows that an observation has found.
func leased(all ...table.Observation) (found []table.Token) {
	for _, o := range all {
		found = slices.AppendSeq(found, maps.Keys(o.OrphanLeases))
		if o.LeaseRecord != nil {
			found = append(found, o.Token)
		}
	}
	return found
}

// The local clock only bounds the keys that are read. A machine whose clock is a day off finds every lease row, with at
// most one additional read. Otherwise it would claim a lock that another candidate holds, or show it as free.
func TestWhatIsFoundDoesNotDependOnTheLocalClock(t *testing.T) {
	for _, off := range []time.Duration{-25 * time.Hour, -13 * time.Hour, -11 * time.Hour, 0, 11 * time.Hour, 25 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := &memstore.Link{Store: &memstore.Store{Ahead: func() time.Duration { return -off }}}
				reads := 1
				if off < -12*time.Hour {
					reads = 2
				}
				for what, step := range finders(t, table.Table{Store: link}) {
					link.Counts()
					assert.ElementsMatch(t, step.rows, step.find(), what)
					assert.Equal(t, reads, readsOf(link), "reads of %s", what)
				}
			})
		})
	}
}

// finder is a step that has to find the lease rows of these tokens.
type finder struct {
	rows []table.Token
	find func() []table.Token
}

// finders are the steps that read lease rows without knowing their tokens. Of three locks and of three partitions, one
// is held, one has lost its lock row, and one has a lock row whose token differs from that of its lease row.
func finders(t *testing.T, tab table.Table) map[string]finder {
	locks := map[string]table.Token{}
	for _, name := range []string{"held", "orphan", "torn"} {
		locks[name] = hold(t, tab, name, time.Hour)
	}
	member := join(t, tab, 0, "m", time.Hour)
	token := take(t, tab, member, time.Hour, "held", "orphan", "torn")
	var partitions []string
	for _, p := range []string{"held", "orphan", "torn"} {
		name := table.PartitionName("orders", p)
		partitions, locks[name] = append(partitions, name), token
	}
	drop(t, tab, "orphan", partitions[1])
	for _, torn := range []string{"torn", partitions[2]} {
		for _, column := range []string{table.ColToken, table.ColHeartbeat} {
			require.NoError(t, tab.Store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Update, Name: torn, Set: []table.Cell{{Column: column, Value: table.Now}}}}))
		}
	}
	look := func(s table.GroupQuery) (found []table.Token) {
		r, err := tab.LookAtGroup(t.Context(), "orders", s)
		require.NoError(t, err)
		for _, name := range partitions {
			found = append(found, leased(r.Partitions[name])...)
		}
		return append(found, leased(r.Members[member.Name])...)
	}
	all := map[string]finder{
		"LookAtLeases": {[]table.Token{locks["held"], locks["orphan"], locks["torn"]}, func() []table.Token {
			seen, err := tab.LookAtLeases(t.Context(), time.Now(), "held", "orphan", "torn")
			require.NoError(t, err)
			return leased(seen...)
		}},
		"LookAtGroup": {[]table.Token{token, token, token, member.Token}, func() []table.Token {
			return look(table.GroupQuery{Members: true, WithLeases: partitions})
		}},
	}
	for name, held := range locks {
		all["ListOne of "+name] = finder{[]table.Token{held}, func() []table.Token {
			one, err := operator.ListOne(t.Context(), tab, name)
			require.NoError(t, err)
			return leased(one.Observation)
		}}
	}
	return all
}

// Of several locks, each is looked at by itself: with the lease rows from its own token on, with the lease row of its own
// token, and as held until its own lease has ended.
// The rows of one lock would otherwise hide a holder of another.
func TestSeveralLocksAreLookedAtEachByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab := table.Table{Store: store}
		names, tokens := []string{"b", "a_1", "a", "c"}, map[string][]table.Token{}
		for range 3 {
			for _, name := range names { // each has three lease rows, and no lock row
				time.Sleep(time.Second)
				tokens[name] = append(tokens[name], hold(t, tab, name, time.Hour))
				drop(t, tab, name)
			}
		}
		for from := range 1 << (2 * len(names)) {
			var since []table.Token
			for i, name := range names {
				since = append(since, append(tokens[name], tokens[name][2]+1)[from>>(2*i)&3])
			}
			seen, err := tab.Follow(t.Context(), time.Now(), since, names...)
			require.NoError(t, err)
			for i, o := range seen {
				assert.Equal(t, names[i], o.Name)
				assert.ElementsMatch(t, tokens[o.Name][from>>(2*i)&3:], o.Orphans, "%s since %d of %d", o.Name, since[i], tokens[o.Name])
			}
		}
		for i, lease := range []time.Duration{3 * time.Second, time.Second, 2 * time.Second} {
			hold(t, tab, fmt.Sprint("held", i), lease)
		}
		seen, err := tab.Observe(t.Context(), "held0", "held1", "held2")
		require.NoError(t, err)
		seen, err = tab.Inspect(t.Context(), seen...)
		require.NoError(t, err)
		for i, lease := range []time.Duration{3 * time.Second, time.Second, 2 * time.Second} {
			if assert.NotNil(t, seen[i].LeaseRecord, seen[i].Name) {
				assert.Equal(t, lease, seen[i].LeaseRecord.Lease, seen[i].Name)
			}
		}
		require.NoError(t, tab.ReleaseFree(t.Context(), hold(t, tab, "held3", time.Hour), time.Hour, "held3"))
		claimed, err := tab.Observe(t.Context(), "held4")
		require.NoError(t, err)
		_, err = tab.Claim(t.Context(), "me", claimed...)
		require.NoError(t, err)
		for i, name := range []string{"held1", "held2", "held0"} {
			end := store.Rows()[name].Heartbeat.Add(time.Duration(i+1) * time.Second)
			for _, off := range []time.Duration{-time.Microsecond, 0} {
				time.Sleep(time.Until(end.Add(off)))
				held, err := tab.Holders(t.Context(), table.Range{From: "held", To: "held~"}, func(string) bool { return true })
				require.NoError(t, err)
				is := func(o table.Observation) bool { return o.Name == name }
				assert.Equal(t, off < 0, slices.ContainsFunc(held, is), name)
				assert.Len(t, slices.DeleteFunc(held, is), 2-i, name)
			}
		}
	})
}

// One of the queues of a large set is long. Reading each queue separately would take longer than a look is allowed to
// take.
func TestALongQueueOfALargeSetIsFoundSoon(t *testing.T) {
	link := &memstore.Link{Store: &memstore.Store{}}
	var tickets []table.Write
	for i := range 40_000 {
		tickets = append(tickets, table.Ticket{Queue: "077", Time: table.Token(i + 1), Nonce: "n"}.Put())
	}
	require.NoError(t, link.Store.Commit(t.Context(), "queue", tickets))
	var beside table.Beside
	for i := range 500 {
		beside.Queues = append(beside.Queues, table.Waiting(fmt.Sprintf("%03d", i), ""))
	}
	_, err := table.Table{Store: link}.Beside(&beside).Observe(t.Context(), "m")
	require.NoError(t, err)
	assert.Less(t, readsOf(link), 25)
	assert.Equal(t, table.MostTickets, len(table.Tickets("077", beside.Rows)))
}
