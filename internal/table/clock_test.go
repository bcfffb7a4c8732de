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
