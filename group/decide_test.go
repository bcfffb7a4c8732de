package group

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// This test has each row of the decision table in docs/groups.md: the action for one partition, and the time of the
// next look at it.
func TestTheTableOfTheDecision(t *testing.T) {
	const d = 3 * time.Second
	var (
		now        = partitionView{read: true}
		later      = partitionView{read: true, wait: d}
		others     = partitionView{read: true, wait: never}
		me         = partitionView{read: true, own: true}
		unread     = partitionView{}
		leftOut    = partitionView{later: true}
		unreadable = partitionView{read: true, unreadable: true, wait: never}
		all        = []partitionView{now, later, others, me, unread, leftOut, unreadable}
	)
	target := local{planned: true, target: true, acting: true, room: true}
	with := func(change func(*local)) local { l := target; change(&l); return l }
	noTarget := with(func(l *local) { l.target = false })
	noPlan := with(func(l *local) { l.planned = false })
	busy := with(func(l *local) { l.busy = true })
	over := with(func(l *local) { l.acting = false })
	leaving := with(func(l *local) { l.leaving = true })
	waits := with(func(l *local) { l.backoff = d })
	for _, c := range []struct {
		what  string
		state state
		see   []partitionView
		local []local
		do    action
		next  time.Duration
	}{
		{"free: nobody's, a target", free, []partitionView{now}, []local{target}, toClaim, noLook},
		{"free: in a while", free, []partitionView{later}, []local{target}, toLeave, d},
		{"free: another's", free, []partitionView{others, leftOut}, []local{target}, toLeave, awaited},
		{"free: not read", free, []partitionView{unread}, []local{target}, toLeave, 0},
		{"free: can't be read", free, []partitionView{unreadable}, []local{target}, toNote, awaited},
		{"free: rows name this term, whatever the plan says", free, []partitionView{me}, []local{target, noTarget, noPlan, busy, over, leaving, waits}, toDoubt, 0},
		{"free: no target, or no plan, or can't be had now", free, []partitionView{now, later, others, unread, leftOut, unreadable}, []local{noTarget, noPlan, busy, over, leaving}, toLeave, noLook},
		{"free: its back-off is not over", free, []partitionView{now, later, others, unread, leftOut, unreadable}, []local{waits}, toLeave, d},

		{"claimed: the request goes on", claimed, all, []local{target, noTarget, noPlan, busy, over, leaving, waits}, toLeave, noLook},
		{"held: a target", held, all, []local{target, busy, waits}, toLeave, noLook},
		{"held: no plan, no revoke for it", held, all, []local{noPlan, with(func(l *local) { l.planned, l.target = false, false })}, toLeave, noLook},
		{"held: no target", held, all, []local{noTarget}, toRevoke, noLook},
		{"held: no target, and enough move already", held, all, []local{with(func(l *local) { l.target, l.room = false, false })}, toLeave, noLook},
		{"held: what a member that leaves has goes with it", held, all, []local{with(func(l *local) { l.target, l.leaving = false, true })}, toLeave, noLook},
		{"held: its lease row is gone", held, []partitionView{{gone: true}}, []local{target, noTarget, noPlan, over, leaving}, toLose, noLook},
		{"held: the term is over", held, all, []local{over, with(func(l *local) { l.acting, l.room = false, false })}, toRevoke, noLook},
		{"revoking: until the work has returned", revoking, all, []local{target, noTarget, noPlan, over, leaving}, toLeave, noLook},
		{"releasing: until the request has ended", releasing, all, []local{target, noTarget, noPlan, over, leaving}, toLeave, noLook},

		{"unresolved: not read", unresolved, []partitionView{unread}, []local{target, noTarget, busy, over, leaving, waits}, toLeave, 0},
		{"unresolved: can't be read", unresolved, []partitionView{unreadable}, []local{target, noTarget, leaving}, toNote, awaited},
		{"unresolved: not this term's", unresolved, []partitionView{now, later, others}, []local{target, noTarget, noPlan, busy, over, leaving, waits}, toClear, 0},
		{"unresolved: this term's and a target", unresolved, []partitionView{me}, []local{target}, toClaim, noLook},
		{"unresolved: a target, and can't be had now", unresolved, []partitionView{me}, []local{busy, over}, toLeave, noLook},
		{"unresolved: its back-off is not over", unresolved, []partitionView{me}, []local{waits, with(func(l *local) { l.target, l.backoff = false, d })}, toLeave, d},
		{"unresolved: no target", unresolved, []partitionView{me}, []local{noTarget, leaving}, toReconcile, noLook},
		{"unresolved: a target, and another's too", unresolved, []partitionView{{read: true, own: true, wait: never}}, []local{target}, toReconcile, noLook},
		{"unresolved: no plan", unresolved, []partitionView{me}, []local{noPlan}, toLeave, awaited},
	} {
		for _, x := range c.see {
			for _, l := range c.local {
				do, next := decideEntry(c.state, x, l)
				assert.Equal(t, c.do, do, "%s: %+v, %+v", c.what, x, l)
				assert.Equal(t, c.next, next, "%s: %+v, %+v", c.what, x, l)
			}
		}
	}
}

// A look leads to one decision for all partitions. No more partitions are revoked than may move now, and the next look
// is at the earliest time that any decision requests.
func TestADecisionIsOfAllPartitions(t *testing.T) {
	v := &inventory{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		v.all = append(v.all, &entry{name: name, lock: name})
	}
	for _, e := range v.all[:3] {
		e.state = held
	}
	for _, e := range v.all[3:] {
		e.target = true
	}
	row := func(name string) table.Observation { return table.Observation{Name: name} }
	see := map[string]partitionView{"c": {gone: true}, "d": {read: true, row: row("d")}, "e": {read: true, wait: 5 * time.Second}, "f": {read: true, wait: 2 * time.Second}}
	f := facts{room: 2, local: local{planned: true, acting: true}}
	d := decide(v, func(e *entry) partitionView { return see[e.name] }, f)
	assert.Equal(t, v.all[:2], d.revoke)
	assert.Equal(t, v.all[2:3], d.lose)
	assert.Equal(t, []table.Observation{row("d")}, d.claim)
	assert.Equal(t, 2*time.Second, d.next)
	assert.False(t, d.again)
	assert.False(t, d.awaits)
	delete(see, "f")
	see["e"] = partitionView{read: true, wait: never}
	d = decide(v, func(e *entry) partitionView { return see[e.name] }, f)
	assert.True(t, d.again, "f was not read")
	assert.True(t, d.awaits, "e is another's")
	assert.Equal(t, v.all[4:5], d.taken)
	see["e"] = partitionView{read: true, wait: time.Second, row: table.Observation{Heartbeat: time.Now()}}
	assert.Equal(t, v.all[4:5], decide(v, func(e *entry) partitionView { return see[e.name] }, f).taken, "a plain lock has it")
	see["e"] = partitionView{read: true, own: true, wait: never}
	assert.Empty(t, decide(v, func(e *entry) partitionView { return see[e.name] }, f).taken, "its own claim was applied, after all")
	v.all[3].paused = true
	assert.Empty(t, decide(v, func(e *entry) partitionView { return see[e.name] }, f).claim, "the program has paused d")
}

// A partition that fails when it is claimed alone is tried less and less often. The pauses grow from a tenth of a lease
// to three leases.
func TestASuspectIsTriedLessAndLessOften(t *testing.T) {
	c := &still{}
	var s suspicion
	assert.Zero(t, s.left(c.Now()))
	for i, want := range []time.Duration{lease / 10, lease / 5, 2 * lease / 5, 4 * lease / 5, 8 * lease / 5, 3 * lease, 3 * lease} {
		s.fail(c, lease, errors.New("no"))
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
	coolDowns := func(f *fitness, e ending, n int) (leases []float64) {
		for range n {
			leases = append(leases, f.coolDown(e).Seconds()/lease.Seconds())
		}
		return leases
	}
	silent := ending{lasted: 2 * lease, silence: lease}
	lost := ending{lasted: 2 * lease, silence: lease / 10}
	f := &fitness{lease: lease}
	assert.Equal(t, []float64{0, 0, 0, 0}, coolDowns(f, silent, 4))
	assert.Equal(t, []float64{0, 1, 2, 4, 8, 10, 10}, coolDowns(f, lost, 7))
	assert.False(t, f.trial)
	assert.Equal(t, []float64{0, 0}, coolDowns(f, ending{lasted: 10 * lease}, 2), "a term that lasts is a new beginning")
	f = &fitness{lease: lease}
	assert.Equal(t, []float64{0, 1, 2, 4, 8, 16, 32, 32}, coolDowns(f, ending{lasted: 20 * lease, useless: true}, 8))
	assert.True(t, f.trial)
	f.recovered()
	assert.False(t, f.trial)
	silent.ill = true
	assert.Equal(t, []float64{0, 1, 2}, coolDowns(f, silent, 3), "it was about to be given up")
	assert.True(t, f.trial)
}

// A member is useless if it has failed for two leases at two partitions that it must claim or release. A partition that no
// member can claim may fail for longer. Beside it, a second one makes no member useless if it fails for a moment, if
// another holder has taken it since then, or if the member no longer has to claim it.
func TestAMemberIsUselessOnlyIfItFailsAtTwoPartitionsForLong(t *testing.T) {
	c, no := &still{}, errors.New("no")
	bad, second := &entry{target: true}, &entry{target: true}
	useless := func(p *progress) bool { return p.useless(c.Now(), 2*lease, 1) }
	begin := func() (p progress) {
		p.failed(c.Now(), no, true, bad)
		c.now += 9 * lease
		assert.False(t, useless(&p), "only one partition fails")
		return p
	}

	p := begin()
	p.failed(c.Now(), no, false, bad, second)
	assert.False(t, p.sick(), "the second one may have failed because of the first one")
	c.now += 2*lease - 1
	p.failed(c.Now(), no, true, second)
	assert.True(t, p.sick())
	assert.False(t, useless(&p))
	c.now++
	assert.True(t, useless(&p))
	p.succeeded()
	assert.False(t, useless(&p))

	for why, change := range map[string]func() (taken []*entry){
		"not assigned": func() []*entry { second.target = false; return nil },
		"paused":       func() []*entry { second.paused = true; return nil },
		"taken":        func() []*entry { return []*entry{second} },
	} {
		p := begin()
		p.failed(c.Now(), no, true, second)
		c.now += 2 * lease
		p.absolve(nil)
		assert.True(t, useless(&p), why)
		p.absolve(change())
		assert.False(t, p.sick(), why)
		second.target, second.paused = true, false
		p.failed(c.Now(), no, true, second)
		assert.False(t, useless(&p), "%s: it fails again, and not for long", why)
	}

	p = begin()
	second.target = false
	second.become(unresolved, 0) // it must be released
	p.failed(c.Now(), no, true, second)
	c.now += 2 * lease
	p.absolve(nil)
	assert.True(t, useless(&p))
	second.clear(0)
	p.absolve(nil)
	assert.False(t, useless(&p), "it was released")
	bad.target = false
	p.absolve(nil)
	assert.False(t, p.useless(c.Now(), 2*lease, 0), "nothing is left at which it fails")
	bad.target = true

	p = progress{}
	p.failed(c.Now(), no, false)
	c.now += 2 * lease
	assert.False(t, useless(&p))
	assert.True(t, p.useless(c.Now(), 2*lease, 0), "it has no partition")
}
