package group

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// What a program asks for while its process is not in the group counts from the start of the next term, and what it asks for later
// counts as well.
func TestRequestsBetweenTwoTermsAreNotLost(t *testing.T) {
	out := map[string]func(c *cluster, a *process) (back func()){
		"before it joins": func(c *cluster, a *process) func() {
			a.link.Cut()
			c.run(a)
			c.sleep(lease)
			return a.link.Mend
		},
		"after it has lost its term": func(c *cluster, a *process) func() {
			c.run(a)
			c.until(lease, "a to have all", spreadOver(4, a))
			a.link.Cut()
			c.sleep(2 * lease)
			return a.link.Mend
		},
		"while it cools down": func(c *cluster, a *process) func() {
			c.start("b", Numbered(4))
			c.run(a)
			a.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not today")))
			c.until(12*lease, "a second useless term", func() bool { return strings.Count(a.log.String(), "msg=left") == 2 })
			return func() { a.link.Refuse(nil) }
		},
	}
	for when, leaves := range out {
		inVirtualTime(t, func(c *cluster) {
			a := c.process("a", Numbered(4))
			var begun sync.Map // the partitions on which it has begun work
			a.do = func(ctx context.Context, p Partition) error { begun.Store(p.Name(), true); return a.work(ctx, p) }
			back := leaves(c, a)
			begun.Clear()
			require.NoError(t, errors.Join(a.Pause("0"), a.Pause("1")))
			c.sleep(lease / 50)
			require.NoError(t, errors.Join(a.Resume("1"), a.Pause("2"), a.SetWeight(7)))
			back()
			c.until(5*lease, when+": a to be a member", func() bool {
				log := a.log.String()
				return strings.LastIndex(log, "msg=joined") > strings.LastIndex(log, "msg=left")
			})
			c.sleep(4 * lease)
			for _, name := range []string{"0", "2"} {
				_, has := begun.Load(name)
				assert.False(t, has, "%s: %s is paused", when, name)
			}
			assert.Equal(t, 7, c.recordOf(a).Weight, when)
			for _, name := range []string{"0", "2"} {
				require.NoError(t, a.Resume(name))
			}
			require.NoError(t, a.SetWeight(3))
			c.until(8*lease, when+": all to be worked on", func() bool { return c.worked() == 4 })
			c.until(lease, when+": the weight to be written", func() bool { return c.recordOf(a).Weight == 3 })
		})
	}
}

// A process that can't join tries at most every tenth of a lease, whether it can't look, can't claim or finds no slot.
func TestAProcessThatCantJoinTriesNowAndThen(t *testing.T) {
	for step, err := range map[string]error{"look": errors.New("not today"), "observe": errors.New("not today"), "claim": table.ErrChanged, "confirm": errors.New("not today")} {
		inVirtualTime(t, func(c *cluster) {
			a := c.process("a", Numbered(1))
			store := a.table.Store
			a.table.Store = table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
				time.Sleep(time.Millisecond) // otherwise, no time would pass if it did not pause
				return call(ctx, store)
			})
			a.link.Refuse(fleet.Refusing(step, err))
			c.run(a)
			c.sleep(10 * lease)
			n := a.link.Counts()["look"]
			assert.LessOrEqual(t, n, 110, step)
			assert.GreaterOrEqual(t, n, 25, "%s: it does not give up", step)
			assert.Contains(t, a.log.String(), "can't keep up with the group", step)
			assert.Error(t, a.Health(), step)
		})
	}
}

// A process that stops while it joins frees the slot that it may have claimed. Otherwise, the process that replaces it takes another slot,
// which stays in the table.
func TestAProcessThatStopsWhileItJoinsLeavesNoClaim(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(1))
		claimed := memstore.Once("claim")
		lost := false
		a.link.Lose(nil, func(step string) bool {
			is := claimed(step)
			lost = lost || is
			return is
		})
		c.run(a)
		c.until(lease, "a claim", func() bool { return lost })
		a.stop()
		<-a.done
		assert.Zero(t, c.store.Rows()["orders/member/0000"].Heartbeat)
	})
}

// One look that fails as a process starts costs it seconds, and not minutes, however long its lease is.
func TestALookThatFailsOnceDelaysAProcessBySeconds(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(1), spindle.WithLease(time.Hour))
		once := memstore.Once("look")
		a.link.Refuse(func(step string) error {
			if once(step) {
				return errors.New("not now")
			}
			return nil
		})
		c.run(a)
		c.until(15*time.Second, "a to have all", spreadOver(1, a))
	})
}

// A process takes the slot whose partitions it should have: its own, if it reclaims; its last one, unless another member was faster;
// the highest of those that were left, or the lowest new one.
func TestWhichSlotIsChosen(t *testing.T) {
	now := time.Now()
	token := table.TokenAt(now.Add(-time.Hour))
	const mine, other, yielding = "a", "b", "its own, which it leaves to others first"
	l := table.LeaseRecord{Lease: lease}
	slot := func(i int, change func(*elect.LockView)) elect.LockView {
		s := elect.LockView{Observation: table.Observation{Name: table.SlotName("orders", i), At: now, Exists: true, Token: token}}
		change(&s)
		return s
	}
	free := func(s *elect.LockView) {}
	never := func(s *elect.LockView) { s.Exists, s.Token = false, 0 }
	held := func(by string, change ...func(*table.LeaseRecord)) func(*elect.LockView) {
		return func(s *elect.LockView) {
			record := l
			for _, c := range change {
				c(&record)
			}
			s.Heartbeat, s.Writer, s.LeaseRecord, s.FreeIn = now, by, &record, lease
		}
	}
	listed := func(list string) func(*table.LeaseRecord) { return func(r *table.LeaseRecord) { r.ListDigest = list } }
	withdrawn := func(s *elect.LockView) { s.Writer = mine }
	noRecord := func(s *elect.LockView) { held(mine)(s); s.LeaseRecord = nil }
	leaving := func(successor string, change ...func(*table.LeaseRecord)) func(*elect.LockView) {
		return held(successor, append(change, func(r *table.LeaseRecord) { r.ID = cmp.Or(r.ID, mine) })...)
	}
	others := func(r *table.LeaseRecord) { r.ID = other }
	for _, reclaim := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			var opts []Option
			if reclaim {
				opts = append(opts, spindle.WithReclaim())
			}
			p := c.process(mine, Numbered(4), opts...)
			list := newMember(p.Group, p.config.Log, nil).inventory.List.Digest()
			young := func(s *elect.LockView) {
				held(mine, listed(list))(s)
				s.Token = table.TokenAt(s.Heartbeat.Add(time.Millisecond - lease))
			}
			for what, x := range map[string]struct {
				seen         []func(*elect.LockView)
				last         int // -1: none
				chosen, lost int // the slot that it tried before, or -1, and how often it has lost one
				want         int // -1: none
				own          int // if it reclaims
				since        table.Token
			}{
				"a new group":                         {[]func(*elect.LockView){never, never}, -1, -1, 0, 0, 0, 0},
				"the lowest new one":                  {[]func(*elect.LockView){held(other), held(other), never, never}, -1, -1, 0, 2, 2, 0},
				"the highest of those left":           {[]func(*elect.LockView){free, free, held(other), never}, -1, -1, 0, 1, 1, 0},
				"its last one":                        {[]func(*elect.LockView){free, free, held(other), free}, 0, -1, 0, 0, 0, 0},
				"another has its last one":            {[]func(*elect.LockView){held(other), free, held(other), never}, 0, -1, 0, 1, 1, 0},
				"it has lost its last one once":       {[]func(*elect.LockView){free, held(other), held(other), held(other)}, 0, -1, 1, 0, 0, 0},
				"one whose claim was withdrawn":       {[]func(*elect.LockView){withdrawn, free, held(other), never}, -1, -1, 0, 1, 1, 0},
				"its own claim may have been applied": {[]func(*elect.LockView){free, held(mine), held(other), never}, -1, 1, 0, 0, 1, 0},
				"no slot is free":                     {[]func(*elect.LockView){held(other), held(other)}, -1, -1, 0, -1, -1, 0},
				"its own":                             {[]func(*elect.LockView){free, held(mine, listed(list)), held(other), never}, -1, -1, 0, 0, 1, token},
				"its own, which reclaimed":            {[]func(*elect.LockView){free, held(mine, listed(list), func(r *table.LeaseRecord) { r.Since = 5 }), held(other)}, -1, -1, 0, 0, 1, 5},
				"its own, with another list":          {[]func(*elect.LockView){free, held(mine, listed("other")), held(other), never}, -1, -1, 0, 0, 1, 0},
				"its own, and its last":               {[]func(*elect.LockView){free, held(mine, listed(list)), held(other), never}, 0, -1, 0, 0, 1, token},
				"its own, which was young":            {[]func(*elect.LockView){free, young, held(other), never}, -1, -1, 0, 0, 1, 0},
				"its own, which is leaving":           {[]func(*elect.LockView){free, leaving("", listed(list)), held(other), never}, -1, -1, 0, 0, 1, token},
				"its own, which has a successor":      {[]func(*elect.LockView){free, leaving("\nb", listed(list)), held(other), never}, -1, -1, 0, 0, 1, token},
				"another's, which leaves for it":      {[]func(*elect.LockView){free, leaving("\na", listed(list), others), held(other), never}, -1, -1, 0, 0, 0, 0},
				"another's, which is leaving":         {[]func(*elect.LockView){free, leaving("", listed(list), others), held(other), never}, -1, -1, 0, 0, 0, 0},
				"its own, whose lease row is missing": {[]func(*elect.LockView){free, noRecord, held(other), never}, -1, -1, 0, 0, 1, 0},
				yielding:                              {[]func(*elect.LockView){free, held(mine, listed(list)), held(other), never}, -1, -1, 0, 0, 0, 0},
			} {
				m := newMember(p.Group, p.config.Log, nil)
				m.candidate.LeaseRecord.Since = 77
				if x.last >= 0 {
					m.memory.Last.Name = table.SlotName("orders", x.last)
				}
				co := contest{lost: x.lost}
				if x.chosen >= 0 {
					co.chosen = table.SlotName("orders", x.chosen)
				}
				var seen []elect.LockView
				for i, change := range x.seen {
					s := slot(i, change)
					if reclaim && s.Holder() == p.config.ID && what != yielding {
						s.FreeIn = 0
					}
					seen = append(seen, s)
				}
				want, since := x.want, table.Token(0)
				if reclaim {
					want, since = x.own, x.since
				}
				s, found := m.choose(seen, &co)
				if assert.Equal(t, want >= 0, found, what) && found {
					assert.Equal(t, seen[want].Name, s.Name, what)
				}
				assert.Equal(t, since, m.candidate.LeaseRecord.Since, "%s: its age", what)
				assert.Equal(t, x.lost, co.lost, what)
				m.letGo()
			}

			// Once another member was faster, it draws from as many slots as it takes to get out of the others' way, and its last slot is
			// one of them.
			m, got := newMember(p.Group, p.config.Log, nil), map[string]int{}
			m.memory.Last.Name = table.SlotName("orders", 0)
			taken := []elect.LockView{slot(0, held(other)), slot(1, free), slot(2, free), slot(3, free), slot(4, held(other))}
			co := contest{chosen: m.memory.Last.Name}
			m.choose(taken, &co)
			require.Equal(t, 1, co.lost)
			taken[0] = slot(0, free)
			for range 100 {
				again := contest{lost: co.lost}
				s, _ := m.choose(taken, &again)
				got[s.Name]++
				require.Equal(t, s.Name, again.chosen)
			}
			require.Len(t, got, 2)
			assert.Positive(t, got[taken[3].Name])
			assert.Positive(t, got[taken[2].Name])
			m.letGo()
		})
	}
}

// RunAndWait ends with ctx, once everything is released, and returns what Run would have sent.
func TestRunAndWaitEndsWithItsContext(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(2))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- a.RunAndWait(ctx) }()
		c.until(lease, "a to have all", spreadOver(2, a))
		assert.ErrorIs(t, a.RunAndWait(ctx), spindle.ErrRunning)
		c.sleep(3 * lease)
		assert.Empty(t, ended)
		stop()
		c.sleep(lease / 100)
		require.Len(t, ended, 1)
		assert.NoError(t, <-ended)
		assert.Len(t, c.view().Unassigned, 2)
	})
}

// A process that cools down polls twice per lease, and joins early only if two polls in a row show that no member lives: a living one
// need not share with a process that fails. A poll that fails shows nothing. The end of ctx ends the cool-down at once.
func TestWhatEndsACoolDown(t *testing.T) {
	for _, x := range []struct {
		polls       string // e: no member lives; m: one does; f: it fails
		pause, want time.Duration
	}{
		{"ee", 5 * lease, lease}, {"emee", 5 * lease, 2 * lease}, {"efee", 5 * lease, 2 * lease}, {"mmee", 5 * lease, 2 * lease}, {"fee", 5 * lease, 3 * lease / 2},
		{"ememememem", 5 * lease, 5 * lease}, {"efefefefef", 5 * lease, 5 * lease}, {"mm", 3 * lease / 4, 3 * lease / 4}, {"m", lease / 4, lease / 4}, {"", 0, 0},
		{"mms", 5 * lease, lease + 1}, // s: its ctx has ended
	} {
		inVirtualTime(t, func(c *cluster) {
			c.start("b", Numbered(1))
			c.sleep(lease)
			p, empty, polls := c.process("a", Numbered(1)), &memstore.Store{}, 0
			p.runs.Begin()
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			p.table.Store = table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
				at := x.polls[polls]
				switch polls++; {
				case at == 'f':
					return errors.New("not today")
				case at == 'e':
					return call(ctx, empty)
				}
				if strings.HasPrefix(x.polls[polls:], "s") {
					time.AfterFunc(1, stop)
				}
				return call(ctx, c.store)
			})
			m := newMember(p.Group, p.config.Log, nil)
			began := time.Now()
			m.coolDown(ctx, x.pause)
			assert.Equal(t, x.want, time.Since(began), x.polls)
			assert.Equal(t, len(x.polls), polls, x.polls)
			m.letGo()
		})
	}
}

// A member's row says what its options say, and that the member accepts no requests to hand over its slot. Its partitions could not go with the
// slot, so such a request would be answered by nobody.
func TestTheRowOfAMemberSaysWhatItsOptionsSay(t *testing.T) {
	const own = 6 * time.Second
	for what, x := range map[string]struct {
		opts   []Option
		change func(*table.LeaseRecord)
	}{
		"nothing":           {nil, func(*table.LeaseRecord) {}},
		"a handover":        {[]Option{spindle.WithHandover()}, func(*table.LeaseRecord) {}},
		"a lease":           {[]Option{spindle.WithLease(own)}, func(r *table.LeaseRecord) { r.Lease = own }},
		"a weight":          {[]Option{WithWeight(3)}, func(r *table.LeaseRecord) { r.Weight = 3 }},
		"a value":           {[]Option{spindle.WithValue("host:80")}, func(r *table.LeaseRecord) { r.Value = "host:80" }},
		"an identity":       {[]Option{WithIdentity(time.Hour)}, func(r *table.LeaseRecord) { r.Keep = time.Hour }},
		"a reclaim":         {[]Option{spindle.WithReclaim()}, func(r *table.LeaseRecord) { r.Keep = 10 * lease }},
		"a reclaim, and no": {[]Option{spindle.WithReclaim(), WithIdentity(0)}, func(*table.LeaseRecord) {}},
	} {
		inVirtualTime(t, func(c *cluster) {
			a := c.alone(2, x.opts...)
			want := table.LeaseRecord{Lease: lease, ID: "a", ListDigest: plan.NewList([]string{"0", "1"}).Digest()}
			x.change(&want)
			assert.Equal(t, want, *c.recordOf(a), what)
		})
	}
}

// A process that has lost its term takes the slot again that it had, and with it the partitions, although another slot is free that a new
// process would take.
func TestAProcessThatLosesItsTermTakesItsSlotAgain(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		ps := c.inSlots("a", "b", "d")
		a, before := ps[0], c.slotOf(ps[0])
		c.end(ps[1])
		c.until(3*lease, "an even spread", spreadOver(24, a, ps[2]))
		c.loseTerm(a)
		c.until(4*lease, "an even spread again", spreadOver(24, a, ps[2]))
		after := c.slotOf(a)
		assert.Equal(t, before.Name, after.Name)
		assert.Greater(t, after.Token, before.Token)
	})
}
