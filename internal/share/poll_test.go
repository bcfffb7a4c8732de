package share

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// awaiting returns the answer to a poll in which another member has each partition that was read, except those that are free.
func awaiting(q table.GroupQuery, free func(lock string) bool) Judge {
	at := time.Unix(1000, 0)
	own, other := table.LeaseRef{Name: table.SlotName("orders", 0), Token: 3}, table.LeaseRef{Name: table.SlotName("orders", 1), Token: 3}
	s := table.GroupSnapshot{At: at, Partitions: map[string]table.Observation{}, Members: map[string]table.Observation{}}
	for _, m := range []table.LeaseRef{own, other} {
		s.Members[m.Name] = table.Observation{Name: m.Name, Exists: true, Token: m.Token, Heartbeat: at}
	}
	for _, lock := range q.WithLeases {
		o := table.Observation{Name: lock, At: at, Exists: true, Token: 2}
		if !free(lock) {
			o.Heartbeat, o.Writer, o.LeaseRecord = at, other.Key(), &table.LeaseRecord{With: other.Key(), Lease: lease}
		}
		s.Partitions[lock] = o
	}
	return Judge{Snapshot: s, Own: own, Memory: plan.NewMemory("orders", lease)}
}

// A poll reads the lease rows of what the member holds, if they are due, and both rows of what it may claim or has to resolve, if
// the members are read as well. It reads nothing else, because a group can have thousands of partitions.
func TestWhatAPollReads(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		v, f := numbered(r.IntN(7), 10)
		f.Planned, f.Leaving = r.IntN(4) > 0, r.IntN(4) == 0
		asked := table.GroupQuery{Members: r.IntN(2) == 0, Body: r.IntN(3) == 0, All: r.IntN(3) == 0}
		whole, want := r.IntN(2) == 0, asked
		want.Members = asked.Members || asked.Body || asked.All
		var unresolved, wanted []string
		for i, e := range v.All {
			e.State, e.Target, e.Paused = State(r.IntN(7)), r.IntN(3) > 0, Pause(r.IntN(3))
			e.Assigned = &Assignment{Token: table.Token(i + 1)}
			if r.IntN(4) == 0 {
				e.Busy = &Assignment{}
			}
			switch {
			case e.State == Held && whole:
				want.Leases = append(want.Leases, table.LeaseRef{Name: e.Lock, Token: table.Token(i + 1)})
			case e.State == Unresolved:
				unresolved = append(unresolved, e.Lock)
			case e.State == Free && e.Target && e.Paused == Running && e.Busy == nil && f.Planned && !f.Leaving:
				wanted = append(wanted, e.Lock)
			}
		}
		if want.Members {
			want.WithLeases = append(unresolved, wanted...)
		}
		require.Equal(t, want, f.Query(asked, whole))
	}
}

// A member that waits for many partitions reads some of them in each poll: always the first ones, and all others in turn, so that
// it finds each one that becomes free. It reads all at once if there are few, or if all that it read could be claimed.
func TestAMemberThatWaitsForManyReadsEachOfThemInTurn(t *testing.T) {
	none := func(string) bool { return false }
	for _, batch := range []int{1, 3, 5} {
		for n := range 40 {
			what := fmt.Sprintf("%d partitions, batches of %d", n, batch)
			v, f := numbered(n, batch)
			first, unread := 2*batch, map[string]bool{}
			rounds := 1
			if n > 4*batch {
				rounds = (n - first + 2*batch - 1) / (2 * batch)
			}
			for i := range 5 * rounds {
				for _, e := range v.All {
					unread[e.Lock] = unread[e.Lock] || i%rounds == 0
				}
				v.Look++
				q := f.Query(table.GroupQuery{Members: true}, true)
				for i := range min(first, n) {
					require.Equal(t, v.All[i].Lock, q.WithLeases[i], what)
				}
				require.LessOrEqual(t, len(q.WithLeases), 4*batch, what)
				if n <= 4*batch {
					require.Len(t, q.WithLeases, n, what)
				}
				for _, lock := range q.WithLeases {
					unread[lock] = false
				}
				if i%rounds == rounds-1 {
					require.NotContains(t, slices.Collect(maps.Values(unread)), true, "%s: after %d polls", what, rounds)
				}
				d := f.Decide(awaiting(q, none))
				require.Equal(t, []any{n > 4*batch, n > 0, false, NoLook}, []any{d.More, d.Awaits, d.Again, d.Next}, what)
				require.Len(t, d.Taken, len(q.WithLeases), what)
			}
		}
	}
}

// If all of many partitions that were read are free, the others probably are as well, so the next poll reads all of them. If one of
// those that were read is not free, the next poll reads some again.
func TestManyThatAreFreeAreReadTogether(t *testing.T) {
	const n, batch = 40, 3
	for what, c := range map[string]struct {
		free  func(lock string) bool
		claim int
		reads int
	}{
		"all are free": {func(string) bool { return true }, 4 * batch, n - 4*batch},
		"one is not":   {func(lock string) bool { return lock != table.PartitionName("orders", "003") }, 4*batch - 1, 4 * batch},
	} {
		v, f := numbered(n, batch)
		v.Look++
		d := f.Decide(awaiting(f.Query(table.GroupQuery{Members: true}, true), c.free))
		require.Len(t, d.Claim, c.claim, what)
		v.Claim(d.Claim, batch)
		v.Look++
		assert.Len(t, f.Query(table.GroupQuery{Members: true}, true).WithLeases, c.reads, what)
	}
}

// A poll that leads to no decision, because something has changed since it was sent, is repeated for the same partitions.
func TestAPollThatComesTooEarlyIsRepeated(t *testing.T) {
	const n, batch = 40, 3
	v, f := numbered(n, batch)
	q := f.Query(table.GroupQuery{Members: true}, true)
	for range 3 {
		v.Clear(v.All[0]) // it changes after the poll is sent
		d := f.Decide(awaiting(q, func(string) bool { return false }))
		require.True(t, d.Again && d.More)
		require.Equal(t, q, f.Query(table.GroupQuery{Members: true}, true))
	}
	v.Look++
	require.False(t, f.Decide(awaiting(q, func(string) bool { return false })).Again)
	require.NotEqual(t, q, f.Query(table.GroupQuery{Members: true}, true))
}

// A plain lock that keeps members from a partition is said once for each of its terms, and only while it does. What says nothing
// about such a lock, such as a partition that only another member's list has, is no reason to stop.
func TestWhichPlainLocksAreSaid(t *testing.T) {
	at := time.Unix(1000, 0)
	held := table.Observation{At: at, Exists: true, Token: 2, Heartbeat: at.Add(1 - lease), Writer: "somebody", LeaseRecord: &table.LeaseRecord{Lease: lease}}
	with := func(change func(*table.Observation)) table.Observation {
		o := held
		record := *held.LeaseRecord
		o.LeaseRecord = &record
		change(&o)
		return o
	}
	for what, c := range map[string]struct {
		o    table.Observation
		said bool
	}{
		"a lock has it":               {held, true},
		"its lease has expired":       {with(func(o *table.Observation) { o.Heartbeat = at.Add(-lease) }), false},
		"it was released":             {with(func(o *table.Observation) { o.Heartbeat = time.Time{} }), false},
		"it is only claimed":          {with(func(o *table.Observation) { o.Heartbeat = o.Token.Time() }), false},
		"its lease row was deleted":   {with(func(o *table.Observation) { o.LeaseRecord = nil }), false},
		"a member has it":             {with(func(o *table.Observation) { o.LeaseRecord.With = "orders/member/0001_3" }), false},
		"an earlier term was said":    {with(func(o *table.Observation) { o.Token = 3 }), true},
		"it has a longer lease":       {with(func(o *table.Observation) { o.LeaseRecord.Lease, o.Heartbeat = 2*lease, at.Add(-lease) }), true},
		"a lock that leaves still is": {with(func(o *table.Observation) { o.Writer = "" }), true},
	} {
		v, _ := numbered(3, 1)
		s := table.GroupSnapshot{At: at, Partitions: map[string]table.Observation{}}
		for _, name := range []string{"002", "000", "elsewhere"} {
			c.o.Name = table.PartitionName("orders", name)
			s.Partitions[c.o.Name] = c.o
		}
		v.All[0].history.plain, v.All[2].history.plain = 1, 1
		var locks []string
		for _, o := range v.PlainLocks(s) {
			locks = append(locks, o.Name)
		}
		if c.said {
			assert.Equal(t, []string{v.All[0].Lock, v.All[2].Lock}, locks, what)
		} else {
			assert.Empty(t, locks, what)
		}
		assert.Empty(t, v.PlainLocks(s), "%s: it was said", what)
	}
}

// The lease that a partition's holder may have if its rows vanish is the longest that is known: the member's own, the holder's, or
// the one in the record. A partition that is not in the list is ignored.
func TestTheLongestLeaseOfAHolderIsRemembered(t *testing.T) {
	other := table.LeaseRef{Name: table.SlotName("orders", 1), Token: 3}
	for _, c := range []struct{ own, holder, record, want time.Duration }{
		{3, 2, 1, 3}, {2, 3, 1, 3}, {1, 2, 3, 3}, {2, 1, 3, 3}, {2, 0, 0, 2}, {2, 5, 0, 5},
	} {
		v, _ := numbered(3, 1)
		m := plan.NewMemory("orders", c.own)
		if c.holder > 0 {
			m.Leases[other] = c.holder
		}
		o := table.Observation{Name: v.All[1].Lock, Exists: true, Heartbeat: time.Unix(1000, 0), Token: 2, Writer: other.Key()}
		if c.record > 0 { // which may name another member than the lock row, after changes by hand
			o.Writer = table.LeaseRef{Name: table.SlotName("orders", 2), Token: 3}.Key()
			o.LeaseRecord = &table.LeaseRecord{With: other.Key(), Lease: c.record}
		}
		v.Learn(table.GroupSnapshot{Partitions: map[string]table.Observation{o.Name: o, v.All[2].Lock: o, "orders/partition/elsewhere": o}}, m)
		assert.Equal(t, []history{{}, {assumed: c.want}, {assumed: c.want}}, []history{v.All[0].history, v.All[1].history, v.All[2].history}, "%+v", c)
	}
}
