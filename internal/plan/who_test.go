package plan

import (
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
		m.Leases[table.LeaseRef{Name: table.SlotName("orders", 1), Token: table.TokenAt(now.Add(-time.Hour))}] = lease
		s := group(c.members...)
		s.Body = c.body
		last := ""
		if c.last >= 0 {
			last = table.SlotName("orders", c.last)
		}
		if c.bad >= 0 {
			s.Unreadable[table.SlotName("orders", c.bad)] = ErrNewer
		}
		m.Slots(s, l, "pod", last, c.more)
		s.At = s.At.Add(c.waited)
		var got []int
		for _, name := range m.Slots(s, l, "pod", last, c.more) {
			got = append(got, slotOf(name))
		}
		assert.Equal(t, c.want, got, what)
	}
	assert.Len(t, NewMemory("orders", lease).Slots(group(in(table.MaxSlot)...), l, "pod", table.SlotName("orders", table.MaxSlot), 256), 1, "no slot is above the highest")
}
