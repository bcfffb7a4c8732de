package group

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

func TestMembersAreHealthyAlsoThoseThatStandBy(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(1))
		require.ErrorContains(t, a.Health(), `health: group "orders": the process is not in the group, because Run was not called or has ended`)
		c.run(a)
		b := c.start("b", Numbered(1))
		for range 600 {
			c.sleep(time.Second)
			require.NoError(t, a.Health())
			require.NoError(t, b.Health())
		}
		require.Equal(t, 1, a.has()+b.has())
		c.end(a, b)
		require.ErrorContains(t, a.Health(), "has ended")
	})
}

// After a machine was suspended, or its wall clock was set forward, its member looks again soon enough to stay healthy.
func TestAStepOfTheWallClockMakesNoMemberUnhealthy(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(4)
		a.linger = func(string) { time.Sleep(lease / 10) }
		for range 5 {
			a.clock.Wall.Add(int64(time.Hour))
			for range 20 {
				require.NoError(t, a.Health())
				c.sleep(lease / 20)
			}
			c.until(12*lease, "an even spread", spreadOver(4, a, b))
		}
	})
}

// A problem does not last longer because the machine was suspended.
func TestAProblemDoesNotLastWhileTheMachineIsSuspended(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(2))
		a.link.Refuse(fleet.Refusing("claim", errors.New("not today")))
		c.run(a)
		c.sleep(2 * lease)
		a.clock.Wall.Add(int64(time.Hour))
		assert.NoError(t, a.Health())
		c.sleep(2 * lease)
		assert.ErrorContains(t, a.Health(), "not today")
	})
}

// A member is unhealthy after three leases of a problem, and says since when and why. It is alive unless a restart may
// help. Once the problem is over, it is healthy.
func TestAMemberIsUnhealthyAfterThreeLeasesOfAProblem(t *testing.T) {
	for how, is := range map[string]struct {
		begin func(c *cluster, a *process) (end func())
		says  []string
		alive bool
	}{
		"it sees nothing": {func(_ *cluster, a *process) func() {
			a.link.Refuse(fleet.Refusing("look", status.Error(codes.Unavailable, "connection refused")))
			return func() { a.link.Refuse(nil) }
		}, []string{"no poll of the group has succeeded since 2000-01-01T00:0", "connection refused"}, false},
		"it can't join": {func(c *cluster, a *process) func() {
			a.link.Refuse(fleet.Refusing("claim", status.Error(codes.PermissionDenied, "no role")))
			c.loseTerm(a)
			return func() { a.link.Refuse(nil) }
		}, []string{"the process has not been in the group since ", "no role"}, true},
		"its work hangs, and its partition has to move": {func(c *cluster, a *process) func() {
			free := c.hung(a)
			c.start("b", Numbered(2))
			c.until(2*lease, "work to be told", func() bool { return a.has() < 2 })
			return free
		}, []string{"has been ignoring the cancellation of its context since "}, false},
		"its work hangs after its term": {func(c *cluster, a *process) func() {
			free := c.hung(a)
			c.loseTerm(a)
			return free
		}, []string{"has been ignoring the cancellation of its context since "}, false},
	} {
		inVirtualTime(t, func(c *cluster) {
			a := c.alone(2)
			c.sleep(2 * lease)
			end := is.begin(c, a)
			took := c.until(4*lease, how+": a to be unhealthy", func() bool { return a.Health() != nil })
			assert.InDelta(t, 3*lease, took, float64(lease*4/10), how)
			for _, says := range is.says {
				assert.ErrorContains(t, a.Health(), says, how)
			}
			assert.Equal(t, is.alive, a.Live(nil) == nil, how)
			end()
			c.until(lease, how+": a to be healthy", func() bool { return a.Health() == nil })
		})
	}
}

// A member that can't poll says why, whether or not it has been in the group: Health does, and so does the reason for the end of its term.
func TestAMemberSaysWhyItCanNotPoll(t *testing.T) {
	for _, joins := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			a := c.process("a", Numbered(2))
			refuse := func() { a.link.Refuse(fleet.Refusing("look", errors.New("no such database"))) }
			if !joins {
				refuse()
			}
			c.run(a)
			if joins {
				c.sleep(2 * lease)
				refuse()
			}
			c.sleep(4 * lease)
			assert.ErrorContains(t, a.Health(), "no such database")
			assert.Equal(t, joins, strings.Contains(a.log.String(), "the last poll failed: "), "the reason for the end of a term")
		})
	}
}

// Work that hangs forever keeps Run from being called again, but does not hide the fact that Run has ended.
func TestBalancedDoesNotWaitForWorkThatHangsWhenRunHasEnded(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(2)
		free := c.hung(a)
		a.stop()
		c.sleep(time.Second)
		waits := make(chan error, 1)
		go func() { waits <- a.Balanced(context.Background()) }()
		require.Error(t, <-a.done)
		c.sleep(time.Second)
		select {
		case err := <-waits:
			assert.ErrorContains(t, err, "has ended")
		default:
			assert.Fail(t, "it waits for the work")
		}
		assert.ErrorContains(t, a.Balanced(context.Background()), "has ended")
		assert.ErrorIs(t, a.Run(context.Background()), spindle.ErrRunning)
		free()
		c.sleep(0)
	})
}

// A member that sees nothing of the group gives up all its partitions, and from that instant no longer has its share. A caller that
// waits for it learns why its own context has ended.
func TestAMemberThatHasGivenUpItsTermIsNotBalanced(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, _ := c.shared(2)
		require.NoError(t, a.Balanced(context.Background()))
		a.linger = func(string) { time.Sleep(lease / 10) } // work that returns makes the loop look
		c.loseTerm(a)
		why := errors.New("rollout")
		limited, cancel := context.WithTimeoutCause(context.Background(), time.Millisecond, why)
		defer cancel()
		err := a.Balanced(limited)
		assert.ErrorIs(t, err, why)
		assert.ErrorContains(t, err, `balanced: group "orders"`)
	})
}

// A member that works on nothing and can't release what it has says so, even if no partition has failed by itself. As long as it works
// on some, two must have failed by themselves, because one may be a partition that nobody can claim.
func TestAMemberThatWorksOnNothingBecauseNothingSucceedsSaysSo(t *testing.T) {
	for works := range 3 {
		for alone := range 3 {
			inVirtualTime(t, func(c *cluster) {
				_, h := c.holding(2)
				defer h.letGo()
				since, no := h.now(), errors.New("not today")
				for i, e := range h.m.inventory.All {
					if i >= works {
						h.moves.revoke(e, ErrMoved)
					}
					h.conduct.Failed(since, no, i < alone, e)
				}
				h.m.report(h)
				if works == 0 || alone == 2 {
					assert.Equal(c.t, &trouble{"it has been impossible to claim or release any partition", since, no}, h.m.g.standing.trouble)
				} else {
					assert.Nil(c.t, h.m.g.standing.trouble, "%d of 2 have work, %d have failed alone", works, alone)
				}
			})
		}
	}
}

// hung makes the work of a process hang once it is told to stop, until free is called.
func (c *cluster) hung(p *process) (free func()) {
	hang := make(chan struct{})
	p.linger = func(string) { <-hang }
	return sync.OnceFunc(func() { close(hang) })
}

// hangsOnce makes the process's work on one partition hang once hangs is true, until free is called.
func (p *process) hangsOnce() (hangs *atomic.Bool, free func()) {
	hangs, hang := &atomic.Bool{}, make(chan struct{})
	p.linger = func(string) {
		if hangs.CompareAndSwap(true, false) {
			<-hang
		}
	}
	return hangs, sync.OnceFunc(func() { close(hang) })
}

// loseTerm ends the process's term by keeping its requests from the table for a while.
func (c *cluster) loseTerm(p *process) {
	p.link.Cut()
	c.until(lease, p.id+" to stop", func() bool { return p.has() == 0 })
	p.link.Mend()
}

// A partition whose work has outlived its term is claimed as soon as the work returns, and not at the next regular poll.
func TestAPartitionIsClaimedWhenWorkOfAnEarlierTermReturns(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(2)
		free := c.hung(a)
		defer free()
		c.loseTerm(a)
		c.sleep(4 * lease) // it is in the group again
		free()
		c.until(lease/100, "a to have all", spreadOver(2, a))
	})
}

// Between two terms, a member may cool down for ten leases. Work that hangs in this time counts immediately.
func TestWorkThatHangsIsSaidWhileItsMemberCoolsDown(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(2))
		a.link.Refuse(fleet.Refusing("claim", errors.New("no role")))
		c.run(a)
		c.start("b", Numbered(2)) // while a second member is running
		c.sleep(lease)
		a.link.Refuse(nil)
		for i := range 5 {
			c.until(12*lease, "a to have one", func() bool { return a.has() == 1 })
			c.deleteMembers("a")
			c.until(lease, "a's term to end", func() bool { return strings.Count(a.log.String(), "msg=left") > i })
		}
		c.until(12*lease, "a to have one", func() bool { return a.has() == 1 })
		free := c.hung(a)
		defer free()
		c.deleteMembers("a")
		c.sleep(2 * lease)
		a.link.Counts()
		c.sleep(2 * lease)
		require.InDelta(t, 4, a.link.Counts()["look"], 1, "it cools down, and looks twice a lease")
		require.ErrorContains(t, a.Health(), "has been ignoring the cancellation of its context")
		free()
		c.sleep(0)
		require.ErrorContains(t, a.Health(), "the process has not been in the group since ")
		assert.NotContains(t, a.Health().Error(), "no role", "which kept it from joining long ago")
		c.clash = nil // b has what a's work hung on, as a has lost its term
	})
}

// Each hang of work is reported one lease after its context ended. It does not matter how long earlier work took to
// return, even if it returned only after the later work had become overdue.
func TestEachTimeThatWorkHangsIsSaid(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(2)
		said := func() int { return strings.Count(a.log.String(), "this member can't claim the partition again") }
		for _, hang := range []struct {
			lasts       time.Duration
			least, most int // log lines, after one lease and each time that the hang has lasted twice as long
		}{{9 * lease, 3, 4}, {3 * lease / 2, 1, 1}} {
			c.sleep(2 * lease)
			before, free := said(), c.hung(a)
			defer free()
			b := c.start("b", Numbered(2))
			c.until(2*lease, "work to be told", func() bool { return a.has() == 1 })
			took := c.until(2*lease, "it to be said", func() bool { return said() > before })
			assert.InDelta(t, lease, took, float64(lease/3+lease/10))
			c.sleep(hang.lasts - took)
			assert.GreaterOrEqual(t, said(), before+hang.least)
			assert.LessOrEqual(t, said(), before+hang.most)
			free()
			c.end(b)
			c.until(lease, "a to have all", spreadOver(2, a))
		}
		hang := map[string]chan struct{}{"0": make(chan struct{}), "1": make(chan struct{})}
		a.linger = func(name string) { <-hang[name] }
		other := func() int { return strings.Count(a.log.String(), "partition=1 waited=") }
		before := other()
		defer close(hang["1"])
		require.NoError(t, a.Pause("0"))
		c.sleep(15 * lease / 2)
		require.NoError(t, a.Pause("1"))
		took := c.until(3*lease/2, "the other hang to be said", func() bool { return other() > before })
		assert.InDelta(t, lease, took, float64(lease/3+lease/10), "although another has lasted longer")
		close(hang["0"])
		c.sleep(lease / 2)
		assert.Equal(t, before+1, other(), "its wait has not doubled")
	})
}

// Health is about the problem that has lasted longest, whichever it is. A member is balanced only if nothing at all is left to do.
func TestTheProblemThatHasLastedLongestIsTheHealth(t *testing.T) {
	no := errors.New("no")
	type problem struct {
		says  string
		cause func(h *term, since elect.Instant)
	}
	problems := []problem{
		{"the process has not been in the group", func(h *term, since elect.Instant) { h.m.out, h.m.failing = since, no }},
		{"it has been impossible to claim or release any partition", func(h *term, since elect.Instant) {
			h.conduct.Failed(since, no, true, h.m.inventory.All[0], h.m.inventory.All[1])
		}},
		{`partition "1" has been impossible to claim or release`, func(h *term, since elect.Instant) {
			h.m.inventory.All[1].Suspect.Fail(since, lease, no)
		}},
	}
	for mask := range 1 << len(problems) {
		for first := range problems {
			inVirtualTime(t, func(c *cluster) {
				_, h := c.holding(2)
				defer h.letGo()
				now, worst := h.now(), -1
				for i := range problems {
					i = (first + i) % len(problems)
					if mask>>i&1 == 0 {
						continue
					}
					if worst < 0 {
						worst = i
					}
					time.Sleep(lease)
					problems[i].cause(h, h.now())
					if worst == i {
						now = h.now()
					}
				}
				h.m.report(h)
				got := h.m.g.standing.trouble
				if worst < 0 {
					assert.Nil(c.t, got)
					return
				}
				require.NotNil(c.t, got)
				assert.Equal(c.t, trouble{problems[worst].says, now, no}, *got)
				health := h.m.g.check(got)
				assert.NoError(c.t, health, "it has just begun")
				time.Sleep(3 * lease)
				health = h.m.g.check(got)
				assert.ErrorContains(c.t, health, problems[worst].says)
				assert.ErrorIs(c.t, health, no, "callers may tell by the cause what to do")
				h.m.inventory.All[0].Busy = &share.Assignment{Since: now}
				time.Sleep(lease)
				h.m.report(nil)
				assert.Equal(c.t, trouble{`the work on partition "0" has been ignoring the cancellation of its context`, now, nil}, *h.m.g.standing.stuck)
			})
		}
	}
	for what, change := range map[string]func(h *term){
		"nothing":            func(*term) {},
		"it leaves":          func(h *term) { h.leave.why = spindle.ErrStopped },
		"a partition moves":  func(h *term) { h.m.inventory.All[0].Target = false },
		"one is to be freed": func(h *term) { h.m.inventory.Doubt(h.m.inventory.All[0]) },
		"the plan is old":    func(h *term) { h.upkeep.planning = h.upkeep.planning.Evicted([]string{h.own.Name}) },
	} {
		inVirtualTime(t, func(c *cluster) {
			p := c.process("a", Numbered(2))
			h := c.inHand(p)
			h.settled()
			require.Equal(c.t, 2, p.has())
			change(h)
			waits := make(chan struct{})
			p.standing.changed = waits
			h.m.report(h)
			assert.Equal(c.t, what == "nothing", p.standing.balanced, what)
			select {
			case <-waits:
			default:
				assert.Fail(c.t, "nobody is woken")
			}
			h.m.report(nil)
			assert.False(c.t, p.standing.balanced, "%s: it is in no term", what)
			h.revokeTerm(ErrMoved)
			h.letGo()
		})
	}
}
