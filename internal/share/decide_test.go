package share

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// The table has what becomes of one partition, and the time of the next look at it, for each state and each poll.
func TestTheTableOfTheDecision(t *testing.T) {
	const d = 3 * time.Second
	var (
		now        = partitionView{read: true}
		later      = partitionView{read: true, wait: d}
		others     = partitionView{read: true, wait: never}
		me         = partitionView{read: true, own: true}
		unread     = partitionView{}
		leftOut    = partitionView{later: true}
		unreadable = partitionView{read: true, unreadable: errors.New("not JSON"), wait: never}
		all        = []partitionView{now, later, others, me, unread, leftOut, unreadable}
	)
	type local struct {
		Facts
		e    Entry
		room bool
	}
	target := local{Facts{Planned: true, Acting: true}, Entry{Target: true}, true}
	with := func(change func(*local)) local { l := target; change(&l); return l }
	noTarget := with(func(l *local) { l.e.Target = false })
	noPlan := with(func(l *local) { l.Planned = false })
	busy := with(func(l *local) { l.e.Busy = &Assignment{} })
	over := with(func(l *local) { l.Acting = false })
	leaving := with(func(l *local) { l.Leaving = true })
	waits := with(func(l *local) { l.e.Suspect = Suspicion{pause: d} })
	rests := with(func(l *local) { l.e.EarlyReturn = Suspicion{pause: d} })
	for _, c := range []struct {
		what  string
		state State
		see   []partitionView
		local []local
		to    State
		next  time.Duration
	}{
		{"free: nobody's, a target", Free, []partitionView{now}, []local{target}, Claimed, NoLook},
		{"free: in a while", Free, []partitionView{later}, []local{target}, Free, d},
		{"free: another's", Free, []partitionView{others, leftOut}, []local{target}, Free, awaited},
		{"free: not read", Free, []partitionView{unread}, []local{target}, Free, 0},
		{"free: can't be read", Free, []partitionView{unreadable}, []local{target}, Free, awaited},
		{"free: rows name this term, whatever the plan says", Free, []partitionView{me}, []local{target, noTarget, noPlan, busy, over, leaving, waits}, Unresolved, 0},
		{"free: no target, or no plan, or can't be had now", Free, []partitionView{now, later, others, unread, leftOut, unreadable}, []local{noTarget, noPlan, busy, over, leaving}, Free, NoLook},
		{"free: its back-off is not over", Free, []partitionView{now, later, others, unread, leftOut, unreadable}, []local{waits}, Free, d},

		{"claimed: the request goes on", Claimed, all, []local{target, noTarget, noPlan, busy, over, leaving, waits}, Claimed, NoLook},
		{"held: a target", Held, all, []local{target, busy, waits}, Held, NoLook},
		{"held: no plan, no revoke for it", Held, all, []local{noPlan, with(func(l *local) { l.Planned, l.e.Target = false, false })}, Held, NoLook},
		{"held: no target", Held, all, []local{noTarget}, Revoking, NoLook},
		{"held: no target, and enough move already", Held, all, []local{with(func(l *local) { l.e.Target, l.room = false, false })}, Held, NoLook},
		{"held: what a member that leaves has goes with it", Held, all, []local{with(func(l *local) { l.e.Target, l.Leaving = false, true })}, Held, NoLook},
		{"held: the term is over", Held, all, []local{over, with(func(l *local) { l.Acting, l.room = false, false })}, Revoking, NoLook},
		{"revoking: until the work has returned", Revoking, all, []local{target, noTarget, noPlan, over, leaving}, Revoking, NoLook},
		{"reconciling: until the request has ended", Reconciling, all, []local{target, noTarget, noPlan, over, leaving}, Reconciling, NoLook},
		{"releasing: until the request has ended", Releasing, all, []local{target, noTarget, noPlan, over, leaving}, Releasing, NoLook},

		{"unresolved: not read", Unresolved, []partitionView{unread}, []local{target, noTarget, busy, over, leaving, waits}, Unresolved, 0},
		{"unresolved: can't be read", Unresolved, []partitionView{unreadable}, []local{target, noTarget, leaving}, Unresolved, awaited},
		{"unresolved: not this term's", Unresolved, []partitionView{now, later, others}, []local{target, noTarget, noPlan, busy, over, leaving, waits}, Free, 0},
		{"unresolved: this term's and a target", Unresolved, []partitionView{me}, []local{target}, Claimed, NoLook},
		{"unresolved: a target, and can't be had now", Unresolved, []partitionView{me}, []local{busy, over}, Unresolved, NoLook},
		{"unresolved: its back-off is not over", Unresolved, []partitionView{me}, []local{waits, rests, with(func(l *local) { l.e = Entry{Suspect: Suspicion{pause: d}} })}, Unresolved, d},
		{"unresolved: no target, whose work returned early", Unresolved, []partitionView{me}, []local{with(func(l *local) { l.e = Entry{EarlyReturn: Suspicion{pause: d}} })}, Reconciling, NoLook},
		{"unresolved: no target", Unresolved, []partitionView{me}, []local{noTarget, leaving, with(func(l *local) { l.Planned, l.Leaving = false, true })}, Reconciling, NoLook},
		{"unresolved: a target, and another's too", Unresolved, []partitionView{{read: true, own: true, wait: never}}, []local{target}, Reconciling, NoLook},
		{"unresolved: no plan", Unresolved, []partitionView{me}, []local{noPlan}, Unresolved, awaited},
	} {
		for _, x := range c.see {
			for _, l := range c.local {
				l.e.State = c.state
				to, next := l.decideEntry(&l.e, x, l.room)
				assert.Equal(t, c.to, to, "%s: %+v, %+v", c.what, x, l)
				assert.Equal(t, c.next, next, "%s: %+v, %+v", c.what, x, l)
			}
		}
	}
}

// A look leads to one decision for all partitions. No more partitions are revoked than may move now, and the next look
// is at the earliest time that any decision requests.
func TestADecisionIsOfAllPartitions(t *testing.T) {
	v := &Inventory{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		v.All = append(v.All, &Entry{Name: name, Lock: name})
	}
	for _, e := range v.All[:3] {
		e.State, e.Assigned = Held, &Assignment{}
	}
	for _, e := range v.All[3:] {
		e.Target = true
	}
	row := func(name string) table.Observation { return table.Observation{Name: name} }
	see := map[string]partitionView{"d": {read: true, row: row("d")}, "e": {read: true, wait: 5 * time.Second}, "f": {read: true, wait: 2 * time.Second}}
	f := Facts{Inventory: v, Batch: 4, Planned: true, Acting: true}
	d := f.decide(func(e *Entry) partitionView { return see[e.Name] })
	assert.EqualValues(t, v.All[:2], d.Revoke)
	assert.EqualValues(t, v.All[2:3], v.Lost(table.GroupSnapshot{LeaseExists: map[table.LeaseRef]bool{{Name: "a"}: true, {Name: "c"}: false}}), "b's row was not read")
	assert.Equal(t, []table.Observation{row("d")}, d.Claim)
	assert.Equal(t, 2*time.Second, d.Next)
	assert.False(t, d.Again)
	assert.False(t, d.Awaits)
	delete(see, "f")
	see["e"] = partitionView{read: true, wait: never}
	d = f.decide(func(e *Entry) partitionView { return see[e.Name] })
	assert.True(t, d.Again, "f was not read")
	assert.True(t, d.Awaits, "e is another's")
	assert.EqualValues(t, v.All[4:5], d.Taken)
	see["e"] = partitionView{read: true, wait: time.Second, row: table.Observation{Heartbeat: time.Now()}}
	assert.EqualValues(t, v.All[4:5], f.decide(func(e *Entry) partitionView { return see[e.Name] }).Taken, "a plain lock has it")
	see["e"] = partitionView{read: true, own: true, wait: never}
	assert.Empty(t, f.decide(func(e *Entry) partitionView { return see[e.Name] }).Taken, "its own claim was applied, after all")
	v.All[3].Paused = Paused
	assert.Empty(t, f.decide(func(e *Entry) partitionView { return see[e.Name] }).Claim, "the program has paused d")
	for _, state := range []State{Revoking, Releasing, Unresolved} {
		v.All[2].State = state
		assert.Empty(t, v.Lost(table.GroupSnapshot{LeaseExists: map[table.LeaseRef]bool{{Name: "c"}: false}}), "its rows were released since the poll was sent")
	}
}

// A partition that fails when it is claimed alone is tried less and less often. The pauses grow from a tenth of a lease
// to three leases.
func TestASuspectIsTriedLessAndLessOften(t *testing.T) {
	c := &still{}
	var s Suspicion
	assert.Zero(t, s.left(c.Now()))
	for i, want := range []time.Duration{lease / 10, lease / 5, 2 * lease / 5, 4 * lease / 5, 8 * lease / 5, 3 * lease, 3 * lease} {
		s.Fail(c.Now(), lease, errors.New("no"))
		assert.Equal(t, want, s.left(c.Now()), "%d", i)
		c.now += want
		assert.Zero(t, s.left(c.Now()))
	}
}

// still is a stopped clock.
type still struct {
	elect.SystemClock
	now time.Duration
}

// Now implements elect.Clock.
func (c *still) Now() elect.Instant {
	return elect.Instant{Wall: int64(time.Hour + c.now), Mono: int64(time.Minute + c.now)}
}

// The way in which terms end decides how long the process cools down. Outages do not count, causes that end terms early
// double the cool-down, and a member that was of no use is on trial.
func TestCoolDowns(t *testing.T) {
	coolDowns := func(f *Fitness, e Ending, n int) (leases []float64) {
		for range n {
			leases = append(leases, f.CoolDown(e).Seconds()/lease.Seconds())
		}
		return leases
	}
	silent := Ending{Lasted: 2 * lease, Silence: lease}
	lost := Ending{Lasted: 2 * lease, Silence: lease / 10}
	f := &Fitness{Lease: lease}
	assert.Equal(t, []float64{0, 0, 0, 0}, coolDowns(f, silent, 4))
	assert.Equal(t, []float64{0, 0}, coolDowns(f, Ending{Lasted: lease, Silence: lease * 6 / 10}, 2))
	assert.Equal(t, []float64{0, 1, 2, 4, 8, 10, 10}, coolDowns(f, lost, 7))
	assert.False(t, f.Trial)
	assert.Equal(t, []float64{0, 0}, coolDowns(f, Ending{Lasted: 10 * lease}, 2), "a term that lasts is a new beginning")
	f = &Fitness{Lease: lease}
	assert.Equal(t, []float64{0, 1, 2, 4, 8, 16, 32, 32}, coolDowns(f, Ending{Lasted: 20 * lease, Useless: true}, 8))
	assert.True(t, f.Trial)
	assert.Equal(t, []float64{10, 10}, coolDowns(f, lost, 2), "the reason of this term sets the limit")
	f.Recovered()
	assert.False(t, f.Trial)
	silent.Useless = true
	assert.Equal(t, []float64{0, 1, 2}, coolDowns(f, silent, 3), "whether or not Spanner could be reached")
	assert.True(t, f.Trial)
}

// A member is useless if it has failed for two leases at two partitions that it must claim or release. A partition that no
// member can claim may fail for longer. Beside it, a second one makes no member useless if it fails for a moment, if
// another holder has taken it since then, or if the member no longer has to claim it.
func TestAMemberIsUselessOnlyIfItFailsAtTwoPartitionsForLong(t *testing.T) {
	c, no := &still{}, errors.New("no")
	bad, second := &Entry{Target: true}, &Entry{Target: true}
	useless := func(p *Conduct) bool { return p.Useless(c.Now(), 1) }
	begin := func() Conduct {
		p := Conduct{Lease: lease}
		p.Failed(c.Now(), no, true, bad)
		c.now += 9 * lease
		assert.False(t, useless(&p), "only one partition fails")
		return p
	}

	p := begin()
	p.Failed(c.Now(), no, false, bad, second)
	assert.False(t, p.Sick(), "the second one may have failed because of the first one")
	c.now += 2*lease - 1
	p.Failed(c.Now(), no, true, second)
	assert.True(t, p.Sick())
	assert.False(t, useless(&p))
	c.now++
	assert.True(t, useless(&p))
	p.Succeeded()
	assert.False(t, useless(&p))

	for why, change := range map[string]func() (taken []*Entry){
		"not assigned": func() []*Entry { second.Target = false; return nil },
		"paused":       func() []*Entry { second.Paused = Paused; return nil },
		"taken":        func() []*Entry { return []*Entry{second} },
	} {
		p := begin()
		p.Failed(c.Now(), no, true, second)
		c.now += 2 * lease
		p.Absolve(nil)
		assert.True(t, useless(&p), why)
		p.Absolve(change())
		assert.False(t, p.Sick(), why)
		second.Target, second.Paused = true, Running
		p.Failed(c.Now(), no, true, second)
		assert.False(t, useless(&p), "%s: it fails again, and not for long", why)
	}

	p = begin()
	second.Target = false
	new(Inventory).Doubt(second) // it must be released
	p.Failed(c.Now(), no, true, second)
	c.now += 2 * lease
	p.Absolve(nil)
	assert.True(t, useless(&p))
	new(Inventory).Clear(second)
	p.Absolve(nil)
	assert.False(t, useless(&p), "it was released")
	bad.Target = false
	p.Absolve(nil)
	assert.False(t, p.Useless(c.Now(), 0), "nothing is left at which it fails")
	bad.Target = true

	p = Conduct{Lease: lease}
	p.Failed(c.Now(), no, false)
	c.now += 2 * lease
	assert.False(t, useless(&p))
	assert.True(t, p.Useless(c.Now(), 0), "it has no partition")
}
