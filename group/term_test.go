package group

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
)

// A term plans with the member's own settings. Its plan would otherwise differ from what it publishes, or come at another's turn.
func TestATermBeginsWithTheSettingsOfItsMember(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		p := c.process("a", Numbered(3), WithInitialDelay(lease/7), spindle.WithLease(lease/2))
		h := c.inHand(p)
		defer h.letGo()
		want := plan.Setting{List: plan.NewList([]string{"0", "1", "2"}), Lease: lease / 2, Delay: lease / 7, Slot: 0, Token: h.lease.Token()}
		assert.Equal(c.t, plan.Planning{Setting: want}, h.upkeep.planning)
		assert.Equal(c.t, table.LeaseRef{Name: table.SlotName("orders", 0), Token: h.lease.Token()}, h.own)
		assert.Equal(c.t, share.Conduct{Lease: lease / 2, Began: h.now(), Acked: h.now()}, h.conduct)
		assert.Equal(c.t, elect.Limit(lease/2), h.polls.left())
		assert.Zero(c.t, h.polls.next.left(h.polls.clock), "it polls at once")
	})
}

// The loop of a term wakes up for whatever is due first, and not before.
func TestTheLoopWakesUpForWhateverIsDueFirst(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		h := c.inHand(c.process("a", Numbered(1)))
		defer h.letGo()
		h.polls.next.off()
		assert.Equal(c.t, never, h.due())
		const soon, late = lease / 40, lease / 20 // while there is no need to hurry because of heartbeats
		for what, a := range map[string]*alarm{
			"a release": &h.moves.releases, "the next batch": &h.moves.revokes, "a poll": &h.polls.next, "the end of the wait": &h.leave.limit, "the end of the handover": &h.leave.revoke,
		} {
			a.set(h.polls.clock, late)
			a.sooner(h.polls.clock, late+1)
			assert.Equal(c.t, late, h.due(), what)
			a.sooner(h.polls.clock, soon)
			a.sooner(h.polls.clock, late)
			assert.Equal(c.t, soon, h.due(), what)
			time.Sleep(soon / 2)
			assert.Equal(c.t, soon/2, h.due(), what)
			time.Sleep(soon)
			assert.Zero(c.t, h.due(), what)
			a.off()
			assert.Equal(c.t, never, h.due(), what)
		}
		h.polls.next.set(h.polls.clock, soon)
		h.polls.pending = true
		assert.Equal(c.t, never, h.due(), "one poll at a time")
		h.moves.queue = []*commit{{ready: elect.PauseFor(h.polls.clock, late)}}
		assert.Equal(c.t, late, h.due())
	})
}

// A member passes its trial by acting on a partition for a lease, and not by owning one whose work has to return. As long as it owns
// partitions, whether or not it acts on them, one partition that fails does not make it useless: nobody might be able to claim that one.
func TestWhatAMemberOwnsIsMoreThanWhatItActsOn(t *testing.T) {
	for acts := range 3 {
		for _, trial := range []bool{false, true} {
			inVirtualTime(t, func(c *cluster) {
				_, h := c.holding(2)
				defer h.letGo()
				h.conduct.Trial = trial
				for _, e := range h.m.inventory.All[acts:] {
					e.Busy = e.Assigned // its work hangs
					h.moves.revoke(e, ErrMoved)
				}
				h.conduct.Failed(h.now(), errors.New("not today"), true, h.m.inventory.All[0])
				for range 4 {
					h.checkFitness()
					time.Sleep(lease)
				}
				assert.Equal(c.t, trial && acts > 0, h.upkeep.planning.Full, "%d of 2 are acted on", acts)
				assert.False(c.t, h.leaving(), "%d of 2 are acted on, on trial: %v", acts, trial)
				h.m.inventory.Clear(h.m.inventory.All...)
				h.checkFitness()
				assert.True(c.t, h.leaving(), "it owns nothing")
			})
		}
	}
}
