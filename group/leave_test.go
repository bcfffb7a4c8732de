package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
)

// A stop ends all work at once, unless there is something to hand over: with WithHandover, work that still runs, or, without WithWork,
// any partition. Then the work continues until the others have had a third of a lease to see the announcement.
func TestWhatAStopHandsOver(t *testing.T) {
	for _, handover := range []bool{false, true} {
		for what, x := range map[string]struct {
			withWork, holds, runs bool
			hands                 bool
		}{
			"work runs":                   {true, true, true, true},
			"the work has returned":       {true, true, false, false},
			"it has no partition":         {true, false, false, false},
			"a program without work":      {false, true, false, true},
			"no work, and no partition":   {false, false, false, false},
			"work of a partition to move": {true, false, true, true},
		} {
			what := fmt.Sprintf("%s, handover: %v", what, handover)
			inVirtualTime(t, func(c *cluster) {
				var opts []Option
				if handover {
					opts = append(opts, spindle.WithHandover())
				}
				p := c.process("a", Numbered(2), opts...)
				if !x.withWork {
					p.config.Work = nil
				}
				h := c.inHand(p)
				defer h.letGo()
				e := h.m.inventory.All[1]
				if x.holds || x.runs {
					h.m.inventory.Hold(e, 5, lease)
					h.beginWork(e)
				}
				if !x.runs {
					e.Busy = nil
				}
				if !x.holds && x.runs {
					h.endWork(e, ErrMoved)
				}
				ctx, stop := context.WithCancelCause(context.Background())
				why := errors.New("rollout")
				stop(why)
				h.stop(ctx)
				assert.ErrorIs(c.t, h.leave.why, spindle.ErrStopped, what)
				assert.ErrorIs(c.t, h.leave.why, why, what)
				hands := handover && x.hands
				assert.Equal(c.t, []bool{hands, hands, hands}, []bool{h.leave.revoke.on, h.leave.marked, h.leave.pending}, what)
				assert.Equal(c.t, hands, strings.Contains(p.log.String(), "msg=leaving"), what)
				if hands {
					assert.Equal(c.t, lease/3, h.leave.revoke.left(h.polls.clock), what)
					assert.NoError(c.t, h.lease.Context().Err(), what)
					assert.Equal(c.t, x.holds, p.has() == 1, what)
					assert.False(c.t, h.finished(), what)
				} else {
					assert.Equal(c.t, why, context.Cause(h.lease.Context()), what)
					assert.Zero(c.t, p.has(), what)
					assert.Equal(c.t, !x.runs, h.finished(), what)
				}
			})
		}
	}
}

// A stop of a member whose work has been told to end hands nothing over. Otherwise, the member would announce a second time that it
// leaves, and its partitions would wait for that.
func TestAStopOfAMemberThatHasGivenUpHandsNothingOver(t *testing.T) {
	for what, ends := range map[string]func(*term){
		"it was useless":              func(h *term) { h.giveUp(errUseless) },
		"its looks failed":            func(h *term) { h.giveUp(errReadDeadline) },
		"its looks fail at that time": func(h *term) { h.lease.CancelWork(errReadDeadline) },
		"its term is over":            func(h *term) { h.lease.End(spindle.ErrSuperseded) },
	} {
		inVirtualTime(t, func(c *cluster) {
			p, h := c.holding(3, spindle.WithHandover())
			defer h.letGo()
			h.m.inventory.All[1].Busy = h.m.inventory.All[1].Assigned // its work hangs
			ends(h)
			h.leave.marked = true
			ctx, stop := context.WithCancel(context.Background())
			stop()
			h.stop(ctx)
			assert.ErrorIs(c.t, h.leave.why, spindle.ErrStopped, what)
			assert.False(c.t, h.leave.pending || h.leave.revoke.on || h.leave.limit.on, what)
			assert.NotContains(c.t, p.log.String(), "msg=leaving", what)
			assert.Equal(c.t, map[string]int{"revoking": 3}, h.states(), what)
			assert.LessOrEqual(c.t, h.moves.releases.left(h.polls.clock), lease/50, what)
		})
	}
}

// Once a member leaves, it only leaves: that its claims or releases fail ends neither its handover nor the reason for the end.
func TestAHandoverGoesOnAlthoughNothingSucceeds(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		p, h := c.holding(2, spindle.WithHandover())
		defer h.letGo()
		h.conduct.Lease = lease / 10 // useless before the handover is over
		ctx, stop := context.WithCancel(context.Background())
		stop()
		h.stop(ctx)
		h.conduct.Failed(h.now(), errors.New("not today"), true, h.m.inventory.All...)
		c.sleep(lease / 4)
		h.checkFitness()
		assert.ErrorIs(c.t, h.leave.why, spindle.ErrStopped)
		assert.Equal(c.t, 2, p.has())
	})
}

// A stop cancels the work's contexts itself, before the loop knows. This is no loss of the term, so the lock is released.
func TestTheContextsThatAStopEndsAreNoLoss(t *testing.T) {
	why := errors.New("rollout")
	for _, stops := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			_, h := c.holding(1)
			defer h.letGo()
			ctx, stop := context.WithCancelCause(context.Background())
			defer stop(nil)
			time.AfterFunc(1, func() {
				if stops {
					stop(why)
				}
				h.lease.CancelWork(why)
			})
			_, lost := h.await(ctx, nil, nil)
			assert.Equal(c.t, !stops, errors.Is(lost, why))
		})
	}
}

// Work that returns just as the grace period ends has returned: its member's lock is released, and Run reports no error. The loop may
// hear of either first.
func TestWorkThatReturnsAsTheGracePeriodEndsHasReturned(t *testing.T) {
	over := make(chan struct{})
	close(over)
	for range 10 {
		for _, member := range []bool{false, true} {
			inVirtualTime(t, func(c *cluster) {
				p, h := c.holding(1)
				defer h.letGo()
				e := h.m.inventory.All[0]
				e.Busy, h.m.caller.gracePeriod = e.Assigned, over
				p.inbox.Put(outcome{of: p.partitions[0].acted.Load()})
				ctx, stop := context.WithCancel(context.Background())
				stop()
				h.stop(ctx)
				if member {
					_, lost := h.await(ctx, nil, nil)
					assert.NoError(c.t, lost)
					assert.True(c.t, h.finished())
				} else {
					h.m.takeIn(over, never, h.m.idle)
					assert.NoError(c.t, h.m.awaitWork())
				}
			})
		}
	}
}

// A member that leaves does not wait for work that the program has let go, whether before the stop or after it. The member's slot is
// released at once, and Run reports no error, because nothing is left to expire.
func TestAMemberThatLeavesWaitsForNoWorkThatWasLetGo(t *testing.T) {
	for _, opts := range [][]Option{nil, {spindle.WithHandover()}} {
		for _, before := range []bool{false, true} {
			inVirtualTime(t, func(c *cluster) {
				what := fmt.Sprintf("handover: %v, let go before: %v", opts != nil, before)
				hang := make(chan struct{})
				defer close(hang)
				a := c.alone(2, opts...)
				a.linger = func(name string) {
					if name == "0" {
						<-hang
					}
				}
				if before {
					assert.NoError(t, a.LetGo("0"))
					c.sleep(2 * lease)
				}
				a.stop()
				left := time.Now()
				if !before {
					c.sleep(lease / 2)
					assert.NoError(t, a.LetGo("0"))
				}
				c.until(lease*4/10, what+": its slot to be released", func() bool { return len(c.view().Members) == 0 })
				assert.NoError(t, <-a.done, what)
				if before {
					assert.Less(t, time.Since(left), lease/2, what)
				}
				assert.ErrorIs(t, a.Run(context.Background()), spindle.ErrRunning, what)
			})
		}
	}
}

// In a handover, the work continues for a third of a lease after the announcement was applied, however long that took. Releases wait
// for the announcement, and no longer than that, whether or not it succeeds.
func TestHowLongAHandoverLasts(t *testing.T) {
	const took = lease / 20
	for _, err := range []error{nil, errors.New("not today")} {
		for _, revoked := range []bool{false, true} { // the work was told to end before the reply
			what := fmt.Sprintf("%v, revoked: %v", err, revoked)
			inVirtualTime(t, func(c *cluster) {
				h := c.inHand(c.process("a", Numbered(1), spindle.WithHandover()))
				defer h.letGo()
				e := h.m.inventory.All[0]
				h.m.inventory.Hold(e, 5, lease)
				h.beginWork(e)
				h.answers(took, err)
				ctx, stop := context.WithCancel(context.Background())
				stop()
				h.stop(ctx)
				if revoked {
					h.revokeTerm(errors.New("heartbeats fail"))
				}
				h.moves.release()
				assert.False(c.t, h.moves.releases.on, "%s: nothing is released before", what)
				began := time.Now()
				h.reply()
				lasted := time.Since(began)
				assert.False(c.t, h.leave.pending, what)
				assert.True(c.t, h.leave.marked, what)
				assert.LessOrEqual(c.t, h.moves.releases.left(h.polls.clock), time.Duration(0), what)
				switch left := h.leave.revoke.left(h.polls.clock); {
				case revoked:
					assert.Equal(c.t, never, left, what)
				case err == nil:
					assert.Equal(c.t, took, lasted, what)
					assert.Equal(c.t, lease/3+took, left, what)
				default:
					assert.Equal(c.t, lease/3-lasted, left, what)
				}
			})
		}
	}
}
