package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A member looks for a partition that another member should release often at first and then less and less often, but never more often
// than Spanner can answer: three times as long as the last look took passes between two looks.
func TestHowPatientlyAPartitionIsAwaited(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		h := c.inHand(c.process("a", Numbered(1)))
		defer h.letGo()
		p := &h.polls
		time.Sleep(20 * lease)
		for _, x := range []struct{ took, waited, want time.Duration }{
			{0, 0, lease / 50}, {0, lease - 1, lease / 50}, {0, lease, lease / 10}, {0, 7 * lease, 7 * lease / 10},
			{lease / 100, 0, 3 * lease / 100}, {lease / 200, 0, lease / 50}, {lease / 10, lease - 1, 3 * lease / 10},
			{lease / 10, lease, 3 * lease / 10}, {lease / 10, 2 * lease, 3 * lease / 10}, {lease / 10, 4 * lease, 4 * lease / 10},
		} {
			p.took, p.changed = x.took, elect.Instant{Wall: h.now().Wall - int64(x.waited), Mono: h.now().Mono - int64(x.waited)}
			got := p.patient()
			assert.LessOrEqual(c.t, got, x.want, "%+v", x)
			if x.waited >= lease {
				assert.Equal(c.t, x.want, got, "%+v", x)
			} else {
				assert.GreaterOrEqual(c.t, got, x.want*9/10, "%+v", x)
			}
		}
	})
}

// even is a clock whose random durations are all zero.
type even struct{ elect.Clock }

// Random implements elect.Clock.
func (even) Random(time.Duration) time.Duration { return 0 }

// memberRow returns the row of a member that has renewed a while ago.
func memberRow(slot int, at time.Time, joined, silent, lasts time.Duration) table.Observation {
	return table.Observation{Name: table.SlotName("orders", slot), At: at, Exists: true, Token: table.TokenAt(at.Add(-joined)), Heartbeat: at.Add(-silent), Writer: "somebody",
		LeaseRecord: &table.LeaseRecord{ListDigest: "list", Lease: lasts}}
}

// A member that waits for nothing reads the members' rows in each poll as long as there are at most a hundred, in every second one with
// more, and so on. One that waits for a partition reads them each time. Members whose lease has expired do not count.
func TestHowOftenTheMembersAreRead(t *testing.T) {
	for _, x := range []struct{ living, dead, skip int }{{1, 0, 0}, {99, 0, 0}, {100, 0, 0}, {101, 0, 1}, {200, 0, 1}, {201, 0, 2}, {100, 50, 0}, {150, 60, 1}} {
		inVirtualTime(t, func(c *cluster) {
			h := c.inHand(c.process("a", Numbered(1)))
			defer h.letGo()
			at := time.Now()
			s := table.GroupSnapshot{At: at, Members: map[string]table.Observation{}, Unreadable: map[string]error{}}
			for slot := 1; slot < x.living+x.dead; slot++ {
				silent := lease / 2
				if slot <= x.dead {
					silent = lease
				}
				m := memberRow(slot, at, 3*lease, silent, lease)
				s.Members[m.Name] = m
			}
			own := memberRow(0, at, time.Millisecond, 0, lease)
			own.Name, own.Token = h.own.Name, h.own.Token
			s.Members[own.Name] = own
			h.polls.skip = 7
			h.polls.seen(s, table.GroupQuery{Members: true})
			assert.Equal(c.t, x.skip, h.polls.skip, "%+v", x)
			for left := x.skip; left > 0; left-- {
				h.polls.seen(table.GroupSnapshot{At: at}, table.GroupQuery{})
				assert.Equal(c.t, left-1, h.polls.skip, "%+v", x)
			}
		})
	}
}

// A useless member waits for work that hangs as long as it can release its other partitions and another member can take them. Otherwise,
// it waits for one lease, unless that changes.
func TestHowLongAUselessMemberWaitsForItsWork(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		_, h := c.holding(2)
		defer h.letGo()
		h.m.inventory.All[1].Busy = h.m.inventory.All[1].Assigned // its work hangs
		h.giveUp(errUseless)
		for i, x := range []struct {
			living int
			fails  bool
			waits  time.Duration
		}{{2, false, never}, {1, false, lease}, {1, true, lease * 3 / 4}, {2, false, never}, {2, true, lease}, {2, true, lease * 3 / 4}, {2, false, never}} {
			s := table.GroupSnapshot{At: time.Now(), Members: map[string]table.Observation{}}
			for slot := range x.living {
				m := memberRow(slot, s.At, 3*lease, 0, lease)
				s.Members[m.Name] = m
			}
			if x.fails {
				h.conduct.Failed(h.now(), errors.New("not today"), false, h.m.inventory.All[0])
			}
			h.polls.seen(s, table.GroupQuery{Members: true})
			assert.Equal(c.t, x.waits, h.leave.limit.left(h.polls.clock), "%d: %+v", i, x)
			time.Sleep(lease / 4)
		}
	})
}

// A member polls as early as the first thing that it must not miss: a third of the shortest lease in the group, the end of another
// member's lease, of the wait of a new group, or of its own time as a newcomer, and its read deadline. Nobody makes it poll much more
// often than its own lease requires.
func TestWhenAMemberPollsAgain(t *testing.T) {
	const third, tenth = lease / 3, lease / 10
	type poll struct {
		h *term
		s table.GroupSnapshot
	}
	ago := func(p poll, d time.Duration) { // when its last whole poll was sent
		last := p.h.now()
		last.Wall, last.Mono = last.Wall-int64(d), last.Mono-int64(d)
		p.h.polls.last.Store(&last)
	}
	at := func(p poll) time.Time { return p.s.At }
	with := func(silent, lasts time.Duration, change ...func(*table.Observation)) func(poll) {
		return func(p poll) {
			o := memberRow(5, at(p), time.Second, silent, lasts)
			for _, c := range change {
				c(&o)
			}
			p.s.Members[o.Name] = o
		}
	}
	since := func(joined time.Duration) func(poll) { // how long ago it joined the group, where another is not new
		return func(p poll) {
			o := memberRow(5, at(p), 9*lease, 0, lease)
			p.s.Members[o.Name] = o
			o = p.s.Members[p.h.own.Name]
			o.LeaseRecord.Since = table.TokenAt(at(p).Add(-joined))
			p.s.Members[o.Name] = o
		}
	}
	for what, x := range map[string]struct {
		see  func(poll)
		want time.Duration
	}{
		"nobody else":                        {func(poll) {}, third},
		"another that renews":                {with(0, lease), third},
		"one with a shorter lease":           {with(0, lease/2), lease / 6},
		"one with a longer lease":            {with(0, 2*lease), third},
		"one with a very short lease":        {with(0, lease/100), tenth},
		"one whose short lease has expired":  {with(lease/2, lease/2), third},
		"one whose lease ends soon":          {with(lease*9/10, lease), tenth},
		"one whose lease ends very soon":     {with(lease*99/100, lease), lease / 100},
		"one whose short lease ends soon":    {with(lease*49/100, lease/2), tenth},
		"one whose long lease ends soon":     {with(lease*195/100, 2*lease), lease / 20},
		"one whose lease has ended":          {with(lease, lease), third},
		"one that has only claimed its slot": {with(lease*9/10, lease, func(o *table.Observation) { o.Token, o.LeaseRecord = table.TokenAt(o.Heartbeat), nil }), third},
		"one that was evicted":               {with(lease*9/10, lease, func(o *table.Observation) { o.Heartbeat, o.LeaseRecord = time.Time{}, nil }), third},
		"one whose lease row is missing":     {with(lease*9/10, lease, func(o *table.Observation) { o.LeaseRecord = nil }), tenth},
		"its own lease ends soon": {func(p poll) {
			o := p.s.Members[p.h.own.Name]
			o.Heartbeat = at(p).Add(-lease * 9 / 10)
			p.s.Members[o.Name] = o
		}, third},
		"its last whole poll was a while ago": {func(p poll) { ago(p, lease/6) }, third - lease/6},
		"its last whole poll was long ago":    {func(p poll) { ago(p, lease*3/10) }, tenth},
		"a new group waits":                   {func(p poll) { p.h.upkeep.planning.Settling = lease / 5 }, lease / 5},
		"a new group has almost waited":       {func(p poll) { p.h.upkeep.planning.Settling = 1 }, lease / 50},
		"its turn to publish comes":           {with(0, lease, func(o *table.Observation) { o.Name = table.SlotName("orders", 0) }), tenth},
		"it is new":                           {since(lease * 4 / 5), lease / 5},
		"it is almost not new":                {since(lease - 3*time.Millisecond), lease / 50},
		"a crowd, and one whose lease ends soon": {func(p poll) {
			for slot := range manyMembers {
				o := memberRow(10+slot, at(p), time.Second, 0, lease)
				p.s.Members[o.Name] = o
			}
			with(lease*9/10, lease)(p)
		}, third},
	} {
		inVirtualTime(t, func(c *cluster) {
			if what == "its turn to publish comes" { // after another's
				defer c.inHand(c.process("b", Numbered(1))).letGo()
			}
			h := c.inHand(c.process("a", Numbered(1)))
			defer h.letGo()
			time.Sleep(time.Millisecond) // its token is in the past
			now := time.Now()
			p := poll{h, table.GroupSnapshot{At: now, Members: map[string]table.Observation{}, Unreadable: map[string]error{}}}
			own := memberRow(0, now, 0, 0, lease)
			own.Name, own.Token, own.LeaseRecord.ListDigest, own.Heartbeat = h.own.Name, h.own.Token, h.m.inventory.List.Digest(), now.Add(time.Millisecond)
			p.s.Members[own.Name] = own
			x.see(p)
			settling := h.upkeep.planning.Settling
			if what != "one that was evicted" { // the first members of the group begin together
				h.upkeep.planning = h.upkeep.planning.After(p.s, true)
			}
			h.upkeep.planning.Settling = settling
			h.m.memory.Learn(p.s)
			h.polls.clock = even{h.polls.clock}
			assert.InDelta(c.t, x.want, h.polls.normal(p.s), float64(2*time.Millisecond), what)
		})
	}
}

// What a request for the group's upkeep has changed is polled at once. If another member was first, the member polls soon. If it has
// failed, it is logged, and sent again at the next poll; a plan that could not be published is polled for sooner, because partitions
// may wait for it. Only one request of a kind is sent at a time.
func TestWhatFollowsFromAStepOfUpkeep(t *testing.T) {
	refused := errors.New("not today")
	type want struct{ least, most time.Duration }
	for step, x := range map[string]struct {
		send    func(h *term, s table.GroupSnapshot)
		pending func(h *term) bool
		fails   want // the pause before a poll after a failure
		first   want // after another member was first
		done    want
	}{
		"publish": {func(h *term, _ table.GroupSnapshot) {
			next, _ := (*plan.Plan)(nil).Next(h.m.inventory.List, nil, time.Now())
			h.upkeep.sendPlan(next)
		}, func(h *term) bool { return h.upkeep.publishing }, want{1, lease / 80}, want{0, lease/50 + 1}, want{0, 0}},
		"evict": {func(h *term, _ table.GroupSnapshot) {
			h.upkeep.evict([]table.Observation{{Name: table.SlotName("orders", 3), Token: 5}})
		}, func(h *term) bool { return h.upkeep.evicting }, want{never, never}, want{0, lease/50 + 1}, want{0, 0}},
		"weigh": {func(h *term, s table.GroupSnapshot) {
			h.m.candidate.LeaseRecord.Weight = 7
			h.upkeep.weigh(s.Members[h.own.Name])
		}, func(h *term) bool { return h.upkeep.weighing }, want{never, never}, want{0, lease/50 + 1}, want{0, 0}},
	} {
		for _, err := range []error{nil, refused, table.ErrChanged, table.ErrSuperseded} {
			if step == "evict" && err == nil {
				continue // nothing is evicted, so another member was first
			}
			inVirtualTime(t, func(c *cluster) {
				p := c.process("a", Numbered(1))
				h := c.inHand(p)
				defer h.letGo()
				s, lookErr := h.send.table.LookAtGroup(h.send.ctx, "orders", table.GroupQuery{Members: true})
				require.NoError(c.t, lookErr)
				h.polls.next.off()
				h.answers(0, err)
				x.send(h, s)
				require.True(c.t, x.pending(h), step)
				if step != "publish" {
					x.send(h, s) // it sends no second one
				}
				h.reply()
				require.Empty(c.t, h.send.replies)
				assert.False(c.t, x.pending(h), "%s: %v", step, err)
				is := x.done
				switch {
				case errors.Is(err, refused):
					is = x.fails
				case err != nil:
					is = x.first
				}
				due := h.polls.next.left(h.polls.clock)
				assert.GreaterOrEqual(c.t, due, is.least, "%s: %v", step, err)
				assert.LessOrEqual(c.t, due, is.most, "%s: %v", step, err)
				if errors.Is(err, refused) {
					assert.Contains(c.t, p.log.String(), step+": not today")
				} else {
					assert.NotContains(c.t, p.log.String(), "still trying", "%s: %v", step, err)
				}
			})
		}
	}
}

// A member that can't publish its plan polls less and less often, and logs the problem once, until it has published a plan.
func TestAPlanThatCanNotBePublishedIsTriedAgainEverMoreRarely(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(2))
		a.link.Refuse(func(step string) error {
			if step == "publish" {
				return errors.New("the column is too short")
			}
			return nil
		})
		c.run(a)
		c.sleep(3 * lease)
		a.link.Counts()
		c.sleep(10 * lease)
		assert.Less(t, a.link.Counts()["look"], 70)
		assert.Equal(t, 1, strings.Count(a.log.String(), "the column is too short"), "%s", &a.log)
		assert.NotContains(t, a.log.String(), "can keep up")
		a.link.Refuse(nil)
		c.until(lease/2, "all partitions to be claimed", spreadOver(2, a))
		c.sleep(lease)
		assert.Equal(t, 1, strings.Count(a.log.String(), "can keep up"))
	})
}

// A member that waits long for a partition, whose work hangs on another member, polls less and less often, however often it plans anew
// what it has planned before.
func TestAPartitionThatIsAwaitedForLongIsPolledRarely(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(2)
		free := c.hung(a)
		defer free()
		b := c.start("b", Numbered(2))
		var looks []int
		for range 3 {
			c.sleep(4 * lease)
			looks = append(looks, b.link.Counts()["look"])
		}
		assert.Zero(t, b.has())
		assert.Greater(t, looks[0], 60)
		assert.Less(t, looks[2], 20)
	})
}

// A weight is written only into the row of the member's own term, if that row has another one, and not by a member that leaves.
func TestWhenAWeightIsWritten(t *testing.T) {
	for what, x := range map[string]struct {
		weight int // that the program wants
		change func(h *term, own *table.Observation)
		writes bool
	}{
		"another weight":          {7, func(*term, *table.Observation) {}, true},
		"the same":                {1, func(*term, *table.Observation) {}, false},
		"no weight is one":        {0, func(_ *term, own *table.Observation) { own.LeaseRecord.Weight = 1 }, false},
		"one is no weight":        {1, func(_ *term, own *table.Observation) { own.LeaseRecord.Weight = 0 }, false},
		"another, set back":       {0, func(_ *term, own *table.Observation) { own.LeaseRecord.Weight = 7 }, true},
		"another term's row":      {7, func(_ *term, own *table.Observation) { own.Token++ }, false},
		"its lease row is gone":   {7, func(_ *term, own *table.Observation) { own.LeaseRecord = nil }, false},
		"it leaves":               {7, func(h *term, _ *table.Observation) { h.leave.why = errors.New("over") }, false},
		"a request is on its way": {7, func(h *term, _ *table.Observation) { h.upkeep.weighing = true }, false},
	} {
		inVirtualTime(t, func(c *cluster) {
			p := c.process("a", Numbered(1))
			h := c.inHand(p)
			defer h.letGo()
			s, err := h.send.table.LookAtGroup(h.send.ctx, "orders", table.GroupQuery{Members: true})
			require.NoError(c.t, err)
			own := s.Members[h.own.Name]
			h.m.candidate.LeaseRecord.Weight = x.weight
			x.change(h, &own)
			p.link.Counts()
			h.upkeep.weigh(own)
			c.sleep(0)
			assert.Equal(c.t, x.writes, p.link.Counts()["weigh"] == 1, what)
			if x.writes {
				h.reply()
			}
		})
	}
}

// If all rows of a partition are deleted by hand, its holder, which may not know it, can act until its lease expires. A member that has
// seen the holder does not claim the partition before.
func TestAPartitionWhoseRowsVanishIsNotClaimedWhileItsHolderMayAct(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const name = "orders/partition/1"
		l, link := c.lock(name, "plain")
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		require.NoError(t, l.Run(ctx, done))
		c.until(lease, "the lock", func() bool { has, _ := l.HasLock(); return has })
		a := c.start("a", Numbered(3))
		c.until(lease, "a to have the others", func() bool { return a.has() == 2 })
		c.sleep(3 * lease)
		link.Cut()
		_, token := l.HasLock()
		c.remove(table.LeaseKey(name, table.Token(token)))
		c.remove(name)
		c.until(2*lease, "a to have all", func() bool {
			has, _ := l.HasLock()
			require.False(t, has && a.has() == 3, "both have it")
			return a.has() == 3
		})
		stop()
		<-done
	})
}

// Health knows the result of each poll in a term: for how long none has succeeded, counted from when the last successful one was sent,
// and why. A success makes it forget the failures. Spanner counts as silent for the same time, which decides whether the member cools
// down.
func TestHealthKnowsTheResultOfEachPoll(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const pause, took = lease / 10, lease / 20
		p := c.process("a", Numbered(1))
		h := c.inHand(p)
		defer h.letGo()
		slowly(p, took)
		age := time.Duration(0)
		for i, err := range []error{nil, errors.New("no route"), errors.New("no role"), nil, errors.New("no database"), nil} {
			p.link.Refuse(fleet.Refusing("look", err))
			time.Sleep(pause)
			began := time.Now()
			for h.polls.poll(); h.polls.pending; {
				h.reply()
			}
			if lasted := time.Since(began); err == nil {
				age = lasted
			} else {
				age += pause + lasted
			}
			since, _ := p.runs.Age(h.polls.clock)
			assert.Equal(c.t, []time.Duration{age, age}, []time.Duration{since, h.now().Since(h.conduct.Acked)}, i)
			if says := p.runs.Check(h.polls.clock, lease, time.Hour, "no poll"); err == nil {
				assert.NoError(c.t, errors.Unwrap(says), i)
			} else {
				assert.ErrorIs(c.t, says, err, i)
			}
		}
	})
}

// An eviction ends only terms of members that are still silent. A member that has renewed meanwhile stays in the plan and keeps its
// partitions, whichever of the others are evicted.
func TestAMemberThatRenewsBeforeItIsEvictedStaysInThePlan(t *testing.T) {
	for renews := range 1 << 3 {
		inVirtualTime(t, func(c *cluster) {
			p := c.process("a", Numbered(3))
			h := c.inHand(p)
			defer h.letGo()
			digest, stays := h.m.inventory.List.Digest(), 0
			for slot := 1; slot <= 3; slot++ {
				token := time.Now().Add(-time.Hour).UTC()
				c.operate(otherMember(slot, token, token.Add(lease), fmt.Sprintf(`{"lease":"10s","plan":%q}`, digest))...)
			}
			s, err := h.send.table.LookAtGroup(h.send.ctx, "orders", table.GroupQuery{Members: true, Body: true})
			require.NoError(c.t, err)
			h.m.learn(s)
			h.upkeep.planning = h.upkeep.planning.After(s, true)
			dead := h.m.memory.Dead(s, h.own.Name)
			require.Len(c.t, dead, 3)
			others := h.upkeep.planning.Members() - 3
			for i, o := range dead {
				if renews>>i&1 == 1 {
					stays++
					c.operate(table.Write{Kind: table.Update, Name: o.Name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: time.Now().UTC()}}})
				}
			}
			h.upkeep.evict(dead)
			h.reply()
			assert.Equal(c.t, others+stays, h.upkeep.planning.Members())
			for i, o := range dead {
				assert.Equal(c.t, renews>>i&1 == 0, strings.Contains(p.log.String(), "slot="+o.Name), "an eviction is logged")
			}
		})
	}
}
