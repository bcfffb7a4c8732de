package group

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// Members says of each partition who works on it, who has paused it, or that nobody has it. Only rows that agree with each other and
// with the row of a living member say that a partition has a member. Partitions are sorted by name, not by the name of their lock.
func TestWhatAViewSaysOfAPartition(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	member := func(slot int) table.LeaseRef {
		return table.LeaseRef{Name: table.SlotName("orders", slot), Token: table.TokenAt(at.Add(-time.Hour))}
	}
	row := func(slot int, silent time.Duration) table.Observation {
		o := memberRow(slot, at, time.Hour, silent, lease)
		r := o.LeaseRecord
		o.Writer, r.ID, r.Value, r.Since = "pod", "id", "host:80", o.Token-5
		return o
	}
	one, two := member(1), member(2)
	held := func(by, with table.LeaseRef) table.Observation {
		return table.Observation{At: at, Exists: true, Token: 3, Heartbeat: at, Writer: by.Key(), LeaseRecord: &table.LeaseRecord{With: with.Key()}}
	}
	change := func(o table.Observation, f func(*table.Observation)) table.Observation { f(&o); return o }
	earlier := table.LeaseRef{Name: one.Name, Token: one.Token - 1}
	for what, c := range map[string]struct {
		o      table.Observation
		has    bool
		paused bool
	}{
		"its member":                       {held(one, one), true, false},
		"a paused one":                     {change(held(one, one), func(o *table.Observation) { o.Heartbeat, o.LeaseRecord = time.Time{}, nil }), false, true},
		"a pause of an earlier term":       {change(held(earlier, one), func(o *table.Observation) { o.Heartbeat, o.LeaseRecord = time.Time{}, nil }), false, false},
		"an earlier term":                  {held(earlier, earlier), false, false},
		"a member whose lease has expired": {held(two, two), false, false},
		"a claim":                          {change(held(one, one), func(o *table.Observation) { o.Heartbeat, o.LeaseRecord = o.Token.Time(), nil }), false, false},
		"its lease row is missing":         {change(held(one, one), func(o *table.Observation) { o.LeaseRecord = nil }), false, false},
		"its lease row is another's":       {held(one, two), false, false},
		"its lock row is another's":        {held(two, one), false, false},
		"its lock row is missing":          {change(held(one, one), func(o *table.Observation) { o.Exists, o.Heartbeat, o.LeaseRecord = false, time.Time{}, nil }), false, false},
		"it was released":                  {table.Observation{At: at, Exists: true, Token: 3}, false, false},
		"a plain lock":                     {table.Observation{At: at, Exists: true, Token: 3, Heartbeat: at, Writer: "somebody", LeaseRecord: &table.LeaseRecord{Lease: lease}}, false, false},
	} {
		leaving := change(row(0, 0), func(o *table.Observation) { o.Writer = "" })
		s := table.GroupSnapshot{At: at, Members: map[string]table.Observation{}, Partitions: map[string]table.Observation{}}
		for _, m := range []table.Observation{leaving, row(1, lease-1), row(2, lease)} {
			s.Members[m.Name] = m
		}
		for _, name := range []string{"eu/west", "b", "b_1", "b1", "a"} {
			s.Partitions[table.PartitionName("orders", name)] = c.o
		}
		v := viewOf(s)
		names := []string{"a", "b", "b1", "b_1", "eu/west"}
		want := View{At: at, Members: []Member{
			{ID: "id", Value: "host:80", Slot: 0, Token: spindle.Token(one.Token), Since: (one.Token - 5).Time(), Heartbeat: at, Lease: lease, Leaving: true, List: "list"},
			{ID: "pod", Value: "host:80", Slot: 1, Token: spindle.Token(one.Token), Since: (one.Token - 5).Time(), Heartbeat: at.Add(1 - lease), Lease: lease, List: "list"},
		}}
		switch {
		case c.has:
			want.Members[1].Partitions = names
		case c.paused:
			want.Members[1].Paused = names
		default:
			want.Unassigned = names
		}
		assert.Equal(t, want, v, what)
	}
}

// Members lists a partition as unreadable if a lease row that can't be read may say which member has it: the partition's lease row, or
// the member's lease row. A partition that was released has no member, whatever is in its other rows.
func TestAViewSaysWhichPartitionsMayHaveAMember(t *testing.T) {
	const name, slot = "orders/partition/p", "orders/member/0001"
	at, bad := time.Unix(1_700_000_000, 0), errors.New("not JSON")
	member := memberRow(1, at, time.Hour, 0, lease)
	by := func(token table.Token) string { return table.LeaseRef{Name: slot, Token: token}.Key() }
	held := func(writer string) table.Observation {
		return table.Observation{At: at, Exists: true, Token: 3, Heartbeat: at, Writer: writer, LeaseRecord: &table.LeaseRecord{}}
	}
	noMember := func(s *table.GroupSnapshot) { s.Members = nil }
	for what, c := range map[string]struct {
		o          table.Observation
		bad        string // the owner of the row that can't be read
		change     func(*table.GroupSnapshot)
		unreadable bool
	}{
		"its own row":                           {held("somebody"), name, nil, true},
		"its own row, without a lock row":       {table.Observation{At: at}, name, nil, true},
		"its own row, and it was released":      {table.Observation{At: at, Exists: true, Token: 3}, name, nil, false},
		"its member's row":                      {held(by(member.Token)), slot, nil, true},
		"its member's row, without a lock row":  {held(by(member.Token)), slot, noMember, true},
		"the row of a later member in its slot": {held(by(member.Token - 1)), slot, nil, false},
		"another row":                           {held(by(member.Token)), "orders/member/0002", nil, false},
	} {
		s := table.GroupSnapshot{At: at, Members: map[string]table.Observation{slot: member}, Partitions: map[string]table.Observation{name: c.o}, Unreadable: map[string]error{c.bad: bad}}
		if c.change != nil {
			c.change(&s)
		}
		v := viewOf(s)
		want := View{Unassigned: []string{"p"}}
		if c.unreadable {
			want = View{Unreadable: []string{"p"}}
		}
		assert.Equal(t, want, View{Unassigned: v.Unassigned, Unreadable: v.Unreadable}, what)
	}
}
