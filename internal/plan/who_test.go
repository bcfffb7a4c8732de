package plan

import (
	"slices"
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
		s := table.GroupSnapshot{At: now, Members: map[string]table.Observation{with.Name: o}, Partitions: map[string]table.Observation{partition.Name: partition}}
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

// A member is dead once it has been silent for the lease that it is known to have. Rows that say nothing about a member's death
// are left alone.
func TestWhoIsDead(t *testing.T) {
	l := NewList([]string{"x"})
	silent := func(d time.Duration, change ...func(*table.Observation)) table.Observation {
		return row(l, 1, time.Hour, append(change, func(o *table.Observation) { o.Heartbeat = now.Add(-d) })...)
	}
	noRecord := func(o *table.Observation) { o.LeaseRecord = nil }
	for what, c := range map[string]struct {
		o     table.Observation
		knows time.Duration // its lease, from earlier
		bad   bool
		own   int
		dead  bool
	}{
		"it renews":                    {silent(lease - 1), 0, false, 0, false},
		"it is silent":                 {silent(lease), 0, false, 0, true},
		"it has a longer lease":        {silent(lease, func(o *table.Observation) { o.LeaseRecord.Lease = 2 * lease }), 0, false, 0, false},
		"it has a shorter lease":       {silent(lease/2, func(o *table.Observation) { o.LeaseRecord.Lease = lease / 2 }), 0, false, 0, true},
		"it leaves, and is silent":     {silent(lease, func(o *table.Observation) { o.Writer = "" }), 0, false, 0, true},
		"it is this member":            {silent(lease), 0, false, 1, false},
		"its lease row can't be read":  {silent(lease), 0, true, 0, false},
		"it was known, and is no more": {silent(lease, noRecord), 3 * lease, false, 0, false},
		"and is silent for that":       {silent(3*lease, noRecord), 3 * lease, false, 0, true},
		"it was never known":           {silent(lease, noRecord), 0, false, 0, true},
		"it has only claimed the slot": {row(l, 1, time.Hour, func(o *table.Observation) { o.Heartbeat = o.Token.Time() }), 0, false, 0, false},
		"it was evicted":               {row(l, 1, time.Hour, func(o *table.Observation) { o.Heartbeat = time.Time{} }), 0, false, 0, false},
		"it is a plain lock":           {silent(lease, func(o *table.Observation) { o.LeaseRecord.ListDigest = "" }), 0, false, 0, false},
	} {
		m := NewMemory("orders", lease)
		if c.knows > 0 {
			m.Learn(group(silent(0, func(o *table.Observation) { o.LeaseRecord.Lease = c.knows })))
		}
		s := group(c.o)
		if c.bad {
			s.Unreadable[c.o.Name] = ErrNewer
		}
		m.Learn(s)
		assert.Equal(t, c.dead, len(m.Dead(s, table.SlotName("orders", c.own))) == 1, what)
	}
}

// A process may try the slots up to one more than asked for above those in use. It leaves out those that can't be read and those
// whose member may still act although its rows were deleted, unless it is the process itself.
func TestWhichSlotsAreTried(t *testing.T) {
	l := NewList([]string{"x"})
	in := func(slots ...int) (members []table.Observation) {
		for _, slot := range slots {
			members = append(members, row(l, slot, time.Hour))
		}
		return members
	}
	noRecord := func(by string, silent time.Duration) table.Observation {
		return row(l, 1, time.Hour, func(o *table.Observation) { o.LeaseRecord, o.Writer, o.Heartbeat = nil, by, now.Add(-silent) })
	}
	body := func(slot int) string {
		p, _ := (*Plan)(nil).Next(l, []Member{memberOf(l, slot, time.Hour)}, now)
		return p.Encode()
	}
	for what, c := range map[string]struct {
		members []table.Observation
		body    string
		last    int // -1: none
		more    int
		bad     int // -1: none
		waited  time.Duration
		want    []int
	}{
		"an empty group":                     {nil, "", -1, 1, -1, 0, []int{0, 1}},
		"more":                               {nil, "", -1, 4, -1, 0, []int{0, 1, 2, 3, 4}},
		"members":                            {in(0, 1), "", -1, 1, -1, 0, []int{0, 1, 2, 3}},
		"a row is missing":                   {in(0, 2), "", -1, 1, -1, 0, []int{0, 2, 3, 4}},
		"a row has been missing for a lease": {in(0, 2), "", -1, 1, -1, lease, []int{0, 1, 2, 3, 4}},
		"the own row is missing":             {in(0, 2), "", 1, 1, -1, 0, []int{0, 1, 2, 3, 4}},
		"its own was the highest":            {in(0), "", 2, 1, -1, lease, []int{0, 1, 2, 3}},
		"the plan has a higher one":          {in(0), body(2), -1, 1, -1, lease, []int{0, 1, 2, 3, 4}},
		"a row can't be read":                {in(0, 1), "", -1, 1, 1, 0, []int{0, 2, 3}},
		"a lease row was deleted":            {[]table.Observation{in(0)[0], noRecord("other", lease-1)}, "", -1, 1, -1, 0, []int{0, 2, 3}},
		"a lease row was deleted long ago":   {[]table.Observation{in(0)[0], noRecord("other", lease)}, "", -1, 1, -1, 0, []int{0, 1, 2, 3}},
		"the own lease row was deleted":      {[]table.Observation{in(0)[0], noRecord("pod", 0)}, "", -1, 1, -1, 0, []int{0, 1, 2, 3}},
	} {
		m := NewMemory("orders", lease)
		if c.members != nil {
			m.Leases[table.LeaseRef{Name: table.SlotName("orders", 1), Token: table.TokenAt(now.Add(-time.Hour))}] = lease
		}
		s := group(c.members...)
		s.Body = c.body
		if c.last >= 0 {
			m.Last, m.Until = table.LeaseRef{Name: table.SlotName("orders", c.last), Token: table.TokenAt(now.Add(-time.Hour))}, now.Add(lease)
		}
		if c.bad >= 0 {
			s.Unreadable[table.SlotName("orders", c.bad)] = ErrNewer
		}
		m.Slots(s, l, "pod", c.more)
		s.At = s.At.Add(c.waited)
		var got []int
		for _, name := range m.Slots(s, l, "pod", c.more) {
			got = append(got, slotOf(name))
		}
		assert.Equal(t, c.want, got, what)
	}
	m := NewMemory("orders", lease)
	m.Last.Name = table.SlotName("orders", table.MaxSlot)
	assert.Len(t, m.Slots(group(in(table.MaxSlot)...), l, "pod", 256), 1, "no slot is above the highest")
}

// A process whose rows were deleted by hand may take its last slot again at once, unless another member may have had that slot since.
// Another member may have had it once a lease has passed since the last heartbeat that was seen, or if a poll has shown that it has.
func TestTheLastSlotIsLeftAloneIfAnotherMemberMayHaveHadIt(t *testing.T) {
	l, slot := NewList([]string{"x"}), table.SlotName("orders", 1)
	for what, c := range map[string]struct {
		later func(*table.Observation) // what the last poll of the row showed
		after time.Duration            // since then
		at    bool                     // the process may take the slot at once
	}{
		"its lease has not expired":   {func(*table.Observation) {}, lease - 1, true},
		"its lease has expired":       {func(*table.Observation) {}, lease, false},
		"another member had its slot": {func(o *table.Observation) { o.Token++ }, 1, false},
	} {
		m := NewMemory("orders", lease)
		m.Last = table.LeaseRef{Name: slot, Token: table.TokenAt(now.Add(-time.Hour))}
		m.Learn(group(row(l, 0, time.Hour), row(l, 1, time.Hour)))
		m.Learn(group(row(l, 0, time.Hour), row(l, 1, time.Hour, c.later)))
		s := group(row(l, 0, time.Hour))
		s.At = now.Add(c.after)
		m.Learn(s)
		assert.Equal(t, c.at, slices.Contains(m.Slots(s, l, "pod", 1), slot), what)
		s.At = s.At.Add(lease)
		m.Learn(s)
		assert.Contains(t, m.Slots(s, l, "pod", 1), slot, "%s, a lease later", what)
	}
}

// A member may remember that another member's row is missing only if it would have read that row: members of other groups are never
// read. Otherwise, it would claim their partitions after a lease.
func TestOnlyRowsOfTheGroupAreMissed(t *testing.T) {
	own, other := table.LeaseRef{Name: table.SlotName("orders", 1), Token: 5}, table.LeaseRef{Name: table.SlotName("bills", 1), Token: 5}
	for how, name := range map[string]func(table.LeaseRef) table.Observation{
		"the lock row": func(with table.LeaseRef) table.Observation { return table.Observation{Writer: with.Key()} },
		"the lease record": func(with table.LeaseRef) table.Observation {
			return table.Observation{LeaseRecord: &table.LeaseRecord{With: with.Key()}}
		},
		"an orphan lease": func(with table.LeaseRef) table.Observation {
			return table.Observation{OrphanLeases: map[table.Token]table.LeaseRecord{3: {With: with.Key()}}}
		},
	} {
		for _, there := range []bool{false, true} {
			m, s := NewMemory("orders", lease), group(table.Observation{Name: own.Name, Exists: there, Token: own.Token, Heartbeat: now})
			s.Partitions = map[string]table.Observation{"orders/partition/0": name(own), "orders/partition/1": name(other)}
			m.Learn(s)
			want := map[table.LeaseRef]time.Time{own: now}
			if there {
				want = map[table.LeaseRef]time.Time{}
			}
			assert.Equal(t, want, m.Missing, how)
		}
	}
}

// A member's lease is remembered from the first poll that shows it until its term is known to be over, even if its lock row, its
// lease row or both are gone by then. What can't be read teaches nothing.
func TestForHowLongALeaseIsRemembered(t *testing.T) {
	l := NewList([]string{"x"})
	with := table.LeaseRef{Name: table.SlotName("orders", 1), Token: table.TokenAt(now.Add(-time.Hour))}
	seen := func(change ...func(*table.Observation)) table.GroupSnapshot {
		return group(row(l, 1, time.Hour, change...))
	}
	bad := seen(func(o *table.Observation) { o.LeaseRecord.Lease = 9 * lease })
	bad.Unreadable[with.Name] = ErrNewer
	orphan := group(table.Observation{Name: with.Name, OrphanLeases: map[table.Token]table.LeaseRecord{with.Token: {Lease: 3 * lease}, with.Token - 1: {Lease: 4 * lease}}})
	for what, c := range map[string]struct {
		knew time.Duration
		s    table.GroupSnapshot
		want time.Duration
	}{
		"it renews":                 {0, seen(), lease},
		"its lease row is gone":     {3 * lease, seen(func(o *table.Observation) { o.LeaseRecord = nil }), 3 * lease},
		"all its rows are gone":     {3 * lease, group(), 3 * lease},
		"its lock row is gone":      {0, orphan, 3 * lease},
		"it was evicted":            {3 * lease, seen(func(o *table.Observation) { o.Heartbeat, o.LeaseRecord = time.Time{}, nil }), 0},
		"another has its slot":      {3 * lease, seen(func(o *table.Observation) { o.Token++ }), 0},
		"its lease row is garbled":  {3 * lease, bad, 3 * lease},
		"it could never be read":    {0, bad, 0},
		"it has changed, in theory": {3 * lease, seen(), lease},
	} {
		m := NewMemory("orders", lease)
		if c.knew > 0 {
			m.Leases[with] = c.knew
		}
		m.Learn(c.s)
		assert.Equal(t, c.want, m.Leases[with], what)
	}
}

// What is true of one member is true of each: they live until their lease has expired, are dead from then on, and their leases are
// remembered. A slot whose rows have vanished is left alone for the longest of these leases, because it may have been the slot of any.
func TestEachMemberCounts(t *testing.T) {
	l := NewList([]string{"x"})
	var members []table.Observation
	for slot := range 6 {
		members = append(members, row(l, slot, time.Hour, func(o *table.Observation) {
			o.LeaseRecord.Lease = time.Duration(6-slot) * lease
			if slot%2 == 1 {
				o.Heartbeat = now.Add(-o.LeaseRecord.Lease)
			}
		}))
	}
	members = append(members, row(l, 9, time.Hour, func(o *table.Observation) { o.LeaseRecord.ListDigest = "" })) // a plain lock
	s := group(members...)
	assert.Equal(t, 3, Living(s))
	m := NewMemory("orders", lease)
	m.Learn(s)
	var dead []string
	for _, o := range m.Dead(s, table.SlotName("orders", 3)) {
		dead = append(dead, o.Name)
	}
	assert.Equal(t, []string{table.SlotName("orders", 1), table.SlotName("orders", 5)}, dead)
	for slot := range 6 {
		assert.Equal(t, time.Duration(6-slot)*lease, m.LeaseOf(members[slot]))
	}
	assert.True(t, m.waitsFor(s, table.SlotName("orders", 7), true))
	s.At = now.Add(6*lease - 1)
	assert.True(t, m.waitsFor(s, table.SlotName("orders", 7), true))
	s.At = now.Add(6 * lease)
	assert.False(t, m.waitsFor(s, table.SlotName("orders", 7), true))
}
