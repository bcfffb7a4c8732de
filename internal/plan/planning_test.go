package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

const lease = 10 * time.Second

// row returns the row of a member that joined so long ago, and has renewed since, up to now.
func row(l List, slot int, joined time.Duration, change ...func(*table.Observation)) table.Observation {
	o := table.Observation{Name: table.SlotName("orders", slot), At: now, Exists: true, Heartbeat: now, Token: table.TokenAt(now.Add(-joined)), Writer: "somebody",
		LeaseRecord: &table.LeaseRecord{ListDigest: l.Digest(), Lease: lease, ID: "pod"}}
	for _, c := range change {
		c(&o)
	}
	return o
}

func group(members ...table.Observation) table.GroupSnapshot {
	s := table.GroupSnapshot{At: now, Members: map[string]table.Observation{}, Unreadable: map[string]error{}}
	for _, o := range members {
		s.Members[o.Name] = o
	}
	return s
}

// planned returns the planning of the member in a slot, after a poll of a plan for these members.
func planned(l List, slot int, joined time.Duration, s table.GroupSnapshot, members ...Member) Planning {
	p := Planning{Setting: Setting{List: l, Lease: lease, Delay: 3 * time.Second, Slot: slot, Token: table.TokenAt(now.Add(-joined))}}
	if members != nil {
		first, _ := (*Plan)(nil).Next(l, members, now)
		s.Plan, s.Body = 5, first.Encode()
	}
	return p.After(s, true)
}

func memberOf(l List, slot int, joined time.Duration) Member {
	return Member{Slot: slot, Token: int64(table.TokenAt(now.Add(-joined))), List: l.Digest(), Weight: 1}
}

// A member counts once it has renewed for a lease, if it began with the group, or if the published plan has it. It counts until
// it leaves or is evicted, however old its last heartbeat is. Otherwise members that look at different times would plan for
// different members, and a late heartbeat would move partitions twice.
func TestWhoCounts(t *testing.T) {
	l := NewList([]string{"x", "y"})
	record := func(change func(*table.LeaseRecord)) func(*table.Observation) {
		return func(o *table.Observation) { change(o.LeaseRecord) }
	}
	trial := record(func(r *table.LeaseRecord) { r.Trial = true })
	onTrial := memberOf(l, 1, time.Second)
	onTrial.Trial = true
	like := func(change func(*Member)) *Member {
		m := memberOf(l, 1, time.Second)
		change(&m)
		return &m
	}
	is := like(func(*Member) {})
	for what, c := range map[string]struct {
		o        table.Observation // in slot 1, beside an old member in slot 0
		joined   time.Duration     // the old member
		plan     *Member           // in slot 1; nil: there is none
		full     bool              // this member is the one in slot 1, and has passed its trial
		want     *Member
		unlisted bool // its row can't be read
	}{
		"it renews":                        {row(l, 1, time.Hour), time.Hour, nil, false, like(func(m *Member) { m.Token = memberOf(l, 1, time.Hour).Token }), false},
		"it is silent":                     {row(l, 1, time.Hour, func(o *table.Observation) { o.Heartbeat = now.Add(-3 * lease) }), time.Hour, nil, false, like(func(m *Member) { m.Token = memberOf(l, 1, time.Hour).Token }), false},
		"it was evicted":                   {row(l, 1, time.Hour, func(o *table.Observation) { o.Heartbeat = time.Time{} }), time.Hour, nil, false, nil, false},
		"it leaves":                        {row(l, 1, time.Hour, func(o *table.Observation) { o.Writer = "" }), time.Hour, nil, false, nil, false},
		"its row can't be read":            {row(l, 1, time.Hour), time.Hour, nil, false, nil, true},
		"it is a plain lock":               {row(l, 1, time.Hour, record(func(r *table.LeaseRecord) { r.ListDigest = "" })), time.Hour, nil, false, nil, false},
		"it is new":                        {row(l, 1, time.Second), time.Hour, nil, false, nil, false},
		"it has joined a lease ago":        {row(l, 1, lease), time.Hour, nil, false, like(func(m *Member) { m.Token = memberOf(l, 1, lease).Token }), false},
		"it has joined, and not renewed":   {row(l, 1, 2*lease, func(o *table.Observation) { o.Heartbeat = now.Add(-2*lease + time.Second) }), time.Hour, nil, false, nil, false},
		"it is as new as the group":        {row(l, 1, time.Second), lease, nil, false, is, false},
		"it is new in a group that is not": {row(l, 1, time.Second), lease + time.Second, nil, false, nil, false},
		"it is new, and in the plan":       {row(l, 1, time.Second), time.Hour, is, false, is, false},
		"another is in the plan":           {row(l, 1, time.Second), time.Hour, like(func(m *Member) { m.Token-- }), false, nil, false},
		"it reclaims":                      {row(l, 1, time.Second, record(func(r *table.LeaseRecord) { r.Since = table.TokenAt(now.Add(-lease)) })), time.Hour, nil, false, is, false},
		"it is on trial":                   {row(l, 1, time.Second, trial), lease, nil, false, &onTrial, false},
		"it has passed its trial":          {row(l, 1, time.Second, trial), lease, nil, true, is, false},
		"it is known to have passed it":    {row(l, 1, time.Second, trial), lease, is, false, is, false},
		"it is still on trial":             {row(l, 1, time.Second, trial), lease, &onTrial, false, &onTrial, false},
		"its weight":                       {row(l, 1, time.Second, record(func(r *table.LeaseRecord) { r.Weight = 7 })), lease, nil, false, like(func(m *Member) { m.Weight = 7 }), false},
		"its identity":                     {row(l, 1, time.Second, record(func(r *table.LeaseRecord) { r.Keep = lease })), lease, nil, false, like(func(m *Member) { m.ID, m.Keep = "pod", lease }), false},
	} {
		s := group(row(l, 0, c.joined, func(o *table.Observation) { // the age of a member that reclaims is its earlier term's
			o.Token, o.LeaseRecord.Since = table.TokenAt(now.Add(-time.Millisecond)), o.Token
		}), c.o)
		if c.unlisted {
			s.Unreadable[c.o.Name] = ErrNewer
		}
		var plan []Member
		if c.plan != nil {
			plan = []Member{memberOf(l, 0, time.Millisecond), *c.plan}
		}
		p := planned(l, 1, time.Second, s, plan...)
		if p.Full = c.full; c.full {
			p = p.After(s, true)
		}
		want := []Member{memberOf(l, 0, time.Millisecond)}
		if c.want != nil {
			want = append(want, *c.want)
		}
		assert.Equal(t, want, p.members, what)
		if c.full {
			other := p
			other.Setting.Slot = 0
			assert.True(t, other.After(s, true).members[1].Trial, "it is another member that has passed its trial")
		}
		assert.Equal(t, c.want != nil && c.want.Token == memberOf(l, 1, time.Second).Token, p.Counts(), what)
	}
}

// A group without a plan for any of its members waits for more members: for the delay since the last one joined, but no longer
// than a lease or the delay since the first one did.
func TestHowLongAGroupWaits(t *testing.T) {
	l := NewList([]string{"x"})
	const s = time.Second
	for what, c := range map[string]struct {
		members []table.Observation
		plan    []Member
		wait    time.Duration
	}{
		"one member":                      {[]table.Observation{row(l, 0, s)}, nil, 2 * s},
		"one that has waited":             {[]table.Observation{row(l, 0, 3*s)}, nil, 0},
		"another joins":                   {[]table.Observation{row(l, 0, 5*s), row(l, 1, s)}, nil, 2 * s},
		"many join":                       {[]table.Observation{row(l, 0, 9*s), row(l, 1, s)}, nil, s},
		"one that joined is leaving":      {[]table.Observation{row(l, 0, 5*s), row(l, 1, s, func(o *table.Observation) { o.Writer = "" })}, nil, 0},
		"the plan has one":                {[]table.Observation{row(l, 0, s)}, []Member{memberOf(l, 0, s)}, 0},
		"the plan has earlier terms only": {[]table.Observation{row(l, 0, s)}, []Member{memberOf(l, 0, lease)}, 2 * s},
	} {
		p := planned(l, 0, s, group(c.members...), c.plan...)
		assert.Equal(t, c.wait, p.Settling, what)
		assert.Equal(t, c.wait == 0 && c.plan != nil, p.Planned(), what)
	}
	p := Planning{Setting: Setting{List: l, Lease: lease, Delay: 3 * lease}}
	assert.Equal(t, 2*lease, p.After(group(row(l, 0, lease), row(l, 1, s)), true).Settling, "a delay that is longer than a lease")
}

// The members that count take turns to publish a plan, a tenth of a lease apart. A plan is followed once it is published, and a
// member whose own copy is out of date follows none.
func TestAPlanIsPublishedByTurns(t *testing.T) {
	l := NewList([]string{"x", "y"})
	s := group(row(l, 0, time.Hour), row(l, 1, time.Hour))
	alone := memberOf(l, 0, time.Hour)
	p := planned(l, 1, time.Hour, s, alone)
	assert.Equal(t, lease/10, p.TurnIn())
	_, ok := p.ToPublish(s, true, nil)
	assert.False(t, ok)
	assert.True(t, p.Planned() && !p.Settled() && !p.ReadsBody() && !p.ReadsAll())
	s.At, s.Plan = now.Add(lease/20), 5
	p = p.After(s, false)
	assert.Equal(t, lease/20, p.TurnIn(), "counted from the poll that found that the plan differs")
	s.At = now.Add(lease / 10)
	p = p.After(s, false)
	next, ok := p.ToPublish(s, false, nil)
	assert.True(t, ok)
	assert.Len(t, next.Members(), 2)
	p = p.Published(6, next)
	assert.True(t, p.Settled() && !p.Stale && p.Head == 6)
	assert.Len(t, p.Targets(), 1)
	assert.Equal(t, never, p.TurnIn())
	s.Plan = 6
	assert.True(t, p.After(s, false).Settled())
	differs := p.Evicted([]string{table.SlotName("orders", 0)})
	assert.False(t, differs.Settled())
	assert.True(t, differs.After(s, false).Settled(), "the member was not evicted after all")

	without, ok := p.Without()
	assert.True(t, ok)
	assert.Equal(t, []Member{alone}, without.Members())
	evicted := p.Evicted([]string{table.SlotName("orders", 0)})
	assert.Equal(t, 1, evicted.Members())
	assert.Len(t, evicted.Targets(), 2)
	assert.Zero(t, evicted.TurnIn())
	assert.Len(t, p.Targets(), 1, "it is not modified")

	s.Plan, s.Body = 7, without.Encode()
	stale := p.After(s, false)
	assert.True(t, stale.Stale && stale.ReadsBody())
	assert.True(t, stale.After(s, false).Stale)
	back := s
	back.Plan, back.Body = 6, next.Encode() // an operator has restored the rows
	restored := stale.After(back, true)
	assert.True(t, !restored.Stale && restored.Settled(), "the plan that it had read before")
	fresh := stale.After(s, true)
	assert.True(t, !fresh.Stale && fresh.known.Same(without) && fresh.Head == 7)
	s.Plan, s.Body = 8, "99\n{}\n"
	newer := fresh.After(s, true)
	assert.ErrorIs(t, newer.Newer, ErrNewer)
	assert.True(t, !newer.Planned() && newer.Targets() == nil && newer.TurnIn() == never)
	again := newer.After(s, false)
	assert.ErrorIs(t, again.Newer, ErrNewer)
	assert.False(t, again.Stale, "it need not be read again")
	s.Plan, s.Body = 0, ""
	none := newer.After(s, true)
	assert.NoError(t, none.Newer)
	assert.Equal(t, lease/10, none.TurnIn(), "the first plan is published by turns, too")
	assert.True(t, none.ReadsBody() && !none.Planned() && !none.ReadsAll())
	s.At = s.At.Add(lease / 10)
	none = none.After(s, true)
	assert.True(t, none.ReadsAll())
	_, ok = none.ToPublish(s, false, nil)
	assert.False(t, ok, "it has not read all partitions")
	s.Members = nil
	assert.Equal(t, 2, none.After(s, true).Members(), "a poll that did not read the members")
}

// A group's first plan leaves each partition to the member that its rows name, as long as that term goes on. Partitions of a member
// that is over, has no row or does not count are for anybody.
func TestTheFirstPlanIsOfTheOwnersThatTheRowsShow(t *testing.T) {
	names := []string{"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"}
	l := NewList(names)
	plain := row(l, 2, time.Hour, func(o *table.Observation) { o.LeaseRecord.ListDigest = "" })
	s := group(row(l, 0, time.Hour), row(l, 1, time.Hour), plain)
	s.Partitions = map[string]table.Observation{}
	key := func(slot int, joined time.Duration) string {
		return table.LeaseKey(table.SlotName("orders", slot), table.TokenAt(now.Add(-joined)))
	}
	lock := func(i int) string { return table.PartitionName("orders", names[i]) }
	p := planned(l, 0, time.Hour, s)
	free, ok := p.ToPublish(s, true, lock)
	assert.True(t, ok)
	of := func(p *Plan) (owner [8]int) {
		for slot := range 2 {
			for _, i := range p.Assigned(l, slot) {
				owner[i] = slot
			}
		}
		return owner
	}
	preferred := of(free)
	for what, c := range map[string]struct {
		writer func(slot int) string
		counts bool
	}{
		"its member":           {func(slot int) string { return key(slot, time.Hour) }, true},
		"an earlier term":      {func(slot int) string { return key(slot, 2*time.Hour) }, false},
		"a slot without a row": {func(slot int) string { return key(slot+7, time.Hour) }, false},
		"who does not count":   {func(slot int) string { return key(2, time.Hour) }, false},
		"a plain lock":         {func(int) string { return "somebody" }, false},
		"nobody":               {func(int) string { return "" }, false},
	} {
		for i := range names { // the other way round than the slots prefer
			s.Partitions[lock(i)] = table.Observation{Name: lock(i), Exists: true, Heartbeat: now, Token: 2, Writer: c.writer(1 - preferred[i])}
		}
		next, ok := p.ToPublish(s, true, lock)
		assert.True(t, ok, what)
		want := preferred
		if c.counts {
			for i := range want {
				want[i] = 1 - want[i]
			}
		}
		assert.Equal(t, want, of(next), what)
	}
}

// A member that leaves publishes the plan without it, if it knows what the plan is and has not published it before.
func TestThePlanWithoutAMemberIsPublishedOnce(t *testing.T) {
	a, b := NewList([]string{"x", "y"}), NewList([]string{"x", "z"})
	s := group(row(a, 0, time.Hour), row(a, 1, time.Hour))
	_, differs := planned(a, 1, time.Hour, s).Without()
	assert.False(t, differs, "there is no plan")

	p := planned(a, 1, time.Hour, s, memberOf(a, 0, time.Hour), memberOf(a, 1, time.Hour))
	next, differs := p.Without()
	assert.True(t, differs)
	assert.Equal(t, []Member{memberOf(a, 0, time.Hour)}, next.Members())
	assert.Len(t, next.Assigned(a, 0), 2)
	_, differs = p.Published(6, next).Without()
	assert.False(t, differs, "it is the plan")
	_, differs = planned(a, 1, time.Hour, s, memberOf(a, 0, time.Hour)).Without()
	assert.False(t, differs, "the plan never had it")
	_, differs = planned(a, 1, time.Hour, group(row(a, 1, time.Hour)), memberOf(a, 1, time.Hour)).Without()
	assert.False(t, differs, "no other member is left, and a plan of nobody would keep no identities")

	// The plan is of members with another list only, and was published without hashes, so this member can't compute the next.
	s = group(row(b, 0, time.Hour), row(a, 1, time.Hour))
	other, _ := (*Plan)(nil).Next(b, []Member{memberOf(b, 0, time.Hour)}, now)
	s.Plan, s.Body = 5, other.Encode()
	q := Planning{Setting: Setting{List: a, Lease: lease, Slot: 1, Token: table.TokenAt(now.Add(-time.Hour))}}.After(s, true)
	assert.False(t, q.Planned())
	assert.Nil(t, q.Next)
	_, differs = q.Without()
	assert.False(t, differs, "it can't be computed")
	_, ok := q.ToPublish(s, true, nil)
	assert.False(t, ok)
}

// A newcomer waits only for members that stay: once all older ones leave, it has their partitions at once.
func TestANewcomerCountsAtOnceIfAllOthersLeave(t *testing.T) {
	l := NewList([]string{"x", "y"})
	for _, leaves := range []bool{false, true} {
		s := group(row(l, 0, time.Hour, func(o *table.Observation) {
			if leaves {
				o.Writer = ""
			}
		}), row(l, 1, time.Second))
		assert.Equal(t, leaves, planned(l, 1, time.Second, s).Counts())
	}
}

// An eviction begins nothing that the last poll did not allow: the group still waits for members, and a newer version's plan is left alone.
func TestAnEvictionPlansNothingByItself(t *testing.T) {
	l := NewList([]string{"x", "y"})
	s := group(row(l, 0, time.Second), row(l, 1, time.Second))
	newer := s
	newer.Plan, newer.Body = 5, "99\nmore"
	for what, p := range map[string]Planning{
		"a new group":                   planned(l, 0, time.Second, s),
		"all that were in it have gone": planned(l, 0, time.Second, s, memberOf(l, 0, time.Hour)),
		"a plan of a newer version":     planned(l, 0, time.Second, newer),
	} {
		assert.True(t, p.Settling > 0 || p.Newer != nil, what)
		p = p.Evicted([]string{table.SlotName("orders", 1)})
		assert.Equal(t, 1, p.Members(), what)
		assert.False(t, p.Planned() || p.ReadsAll(), what)
		assert.Equal(t, never, p.TurnIn(), what)
	}
}

// What a poll says is known only once the plan and the members are: a plan that was lost or is out of date assigns nothing.
func TestNothingIsPlannedWithoutAPlan(t *testing.T) {
	l := NewList([]string{"x"})
	s := group(row(l, 0, time.Hour))
	p := planned(l, 0, time.Hour, s, memberOf(l, 0, time.Hour))
	assert.True(t, p.Planned() && p.Settled())
	assert.Equal(t, []int{0}, p.Targets())
	s.Members, s.Plan, s.Body = nil, 6, "garbled"
	lost := p.After(s, true)
	assert.False(t, lost.Planned(), "its plan was replaced by none")
	assert.False(t, lost.Settled())
}

// A newcomer that does not count yet has not settled, although the plan of the others is up to date: it is going to have a share.
func TestANewcomerHasNotSettled(t *testing.T) {
	l := NewList([]string{"x", "y"})
	old := memberOf(l, 0, time.Hour)
	p := planned(l, 1, time.Second, group(row(l, 0, time.Hour), row(l, 1, time.Second)), old)
	assert.True(t, p.Planned() && !p.Counts())
	assert.False(t, p.Settled())
	assert.Empty(t, p.Targets())
	assert.Equal(t, never, p.TurnIn())
	p = planned(l, 0, time.Hour, group(row(l, 0, time.Hour), row(l, 1, time.Second)), old)
	assert.True(t, p.Settled(), "the others have")
}
