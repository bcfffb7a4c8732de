package group

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
)

// holding returns a term in hand that acts on n partitions, under the tokens from 1 on.
func (c *cluster) holding(n int, opts ...Option) (*process, *term) {
	p := c.process("a", Numbered(n), opts...)
	p.config.Work = nil
	h := c.inHand(p)
	for i, e := range h.m.inventory.All {
		h.m.inventory.Hold(e, table.Token(i+1), lease)
		h.beginWork(e)
	}
	h.polls.next.off()
	return p, h
}

// Partitions are released a batch at a time, each under its own token. After a success, the next batch is revoked twice as long
// after as the release took. After a failure, nobody knows who has the partitions, so they are polled, and no more are revoked.
func TestWhatFollowsFromTheReplyToARelease(t *testing.T) {
	const n, batch, took = 5, 3, lease / 20
	for _, err := range []error{nil, errors.New("not today"), table.ErrAborted, context.DeadlineExceeded} {
		for _, revoking := range []bool{false, true} { // another batch is to be revoked
			what := fmt.Sprintf("%v, revoking: %v", err, revoking)
			inVirtualTime(t, func(c *cluster) {
				p, h := c.holding(n, batchesOf(batch))
				defer h.letGo()
				h.conduct.Failed(h.now(), errors.New("earlier"), true, h.m.inventory.All[0])
				for i, e := range h.m.inventory.All {
					if e.Target = i == n-1; !e.Target {
						h.moves.revoke(e, ErrMoved)
					}
				}
				require.Zero(c.t, h.moves.releases.left(h.polls.clock), what)
				h.answers(took, err)
				if revoking {
					h.moves.revokes.set(h.polls.clock, lease/50)
				}
				h.moves.release()
				assert.Equal(c.t, map[string]int{"releasing": batch, "revoking": 1, "held": 1}, h.states(), what)
				assert.Zero(c.t, h.moves.releases.left(h.polls.clock), "%s: one is left for the next commit", what)
				h.moves.releases.off()
				h.reply()
				want := never
				if revoking {
					want = 2 * took
				}
				next, poll := h.moves.revokes.left(h.polls.clock), h.polls.next.left(h.polls.clock)
				if err == nil {
					assert.Equal(c.t, map[string]int{"free": batch, "revoking": 1, "held": 1}, h.states(), what)
					assert.Equal(c.t, elect.Instant{}, h.conduct.Since, what)
					assert.Equal(c.t, never, poll, what)
					assert.Equal(c.t, want, next, what)
				} else {
					assert.Equal(c.t, map[string]int{"unresolved": batch, "revoking": 1, "held": 1}, h.states(), what)
					assert.ErrorIs(c.t, h.conduct.Err, err, what)
					assert.False(c.t, h.conduct.Sick(), "%s: they did not fail by themselves", what)
					assert.LessOrEqual(c.t, poll, lease/80, what)
					assert.Equal(c.t, never, next, what)
					assert.Contains(c.t, p.log.String(), "release: "+err.Error(), what)
				}
				h.moves.release()
				assert.Equal(c.t, 1, h.states()["releasing"], what)
				assert.Equal(c.t, never, h.moves.releases.left(h.polls.clock), "%s: nothing is left", what)
				assert.Equal(c.t, 1, p.has(), what)
			})
		}
	}
}

// A release has the rows of each of its partitions, and no others.
func TestAReleaseIsOfTheTokensThatWereHeld(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		p := c.process("a", Numbered(4))
		h := c.inHand(p)
		defer h.letGo()
		h.settled()
		require.Equal(c.t, 4, p.has())
		all := h.m.inventory.All
		for _, e := range all[1:3] {
			h.moves.revoke(e, ErrMoved)
		}
		c.sleep(0)
		h.collect()
		h.moves.release()
		h.reply()
		v := c.view()
		assert.Equal(c.t, []string{"0", "3"}, v.Members[0].Partitions)
		assert.Equal(c.t, []string{"1", "2"}, v.Unassigned)
	})
}

// Nothing is released by a member that leaves before the others know that it does: otherwise, the plan would still be that it has the
// partitions. A partition whose rows are missing is polled at once instead of released.
func TestWhatMustComeBeforeARelease(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		_, h := c.holding(2)
		defer h.letGo()
		h.leave.why = errUseless
		for _, e := range h.m.inventory.All {
			h.moves.revoke(e, ErrMoved)
		}
		h.moves.release()
		assert.True(c.t, h.leave.marked && h.leave.pending)
		h.moves.release()
		assert.Equal(c.t, map[string]int{"revoking": 2}, h.states())
		h.reply()
		h.moves.release()
		assert.Equal(c.t, map[string]int{"releasing": 2}, h.states())
	})
	inVirtualTime(t, func(c *cluster) {
		_, h := c.holding(3)
		defer h.letGo()
		h.moves.lose(h.m.inventory.All[:2]...)
		assert.Equal(c.t, map[string]int{"revoking": 2, "held": 1}, h.states())
		h.moves.release()
		assert.Equal(c.t, map[string]int{"unresolved": 2, "held": 1}, h.states())
		assert.Zero(c.t, h.polls.next.left(h.polls.clock))
		assert.Equal(c.t, never, h.moves.releases.left(h.polls.clock))
	})
}

// Partitions that move are revoked a batch at a time, each with its reason, and the next batch has its turn soon if the first was full.
func TestOneBatchIsRevokedAtATime(t *testing.T) {
	for n := range 8 {
		inVirtualTime(t, func(c *cluster) {
			p := c.process("a", Numbered(n+1), batchesOf(6))
			h := c.inHand(p).settled()
			defer h.letGo()
			for _, e := range h.m.inventory.All {
				e.Target = false
			}
			h.m.inventory.All[n].Target = true // the others must move
			var works []*assignment
			for _, x := range p.partitions {
				works = append(works, x.acted.Load())
			}
			const batch = 3
			h.moves.revokeMore()
			assert.Equal(c.t, max(n-batch, 0)+1, p.has(), n)
			assert.Equal(c.t, n >= batch, h.moves.revokes.on, n)
			for _, a := range works[:min(n, batch)] {
				assert.Equal(c.t, ErrMoved, context.Cause(a.ctx), n)
				assert.Equal(c.t, share.Revoking, a.entry.State)
			}
			if n >= batch {
				assert.Equal(c.t, lease/50, h.moves.revokes.left(h.polls.clock), n)
			}
			h.moves.revokeMore()
			assert.Equal(c.t, max(n-2*batch, 0)+1, p.has(), n)
			assert.Equal(c.t, n >= 2*batch, h.moves.revokes.on, "%d: the last batch is the last", n)
		})
	}
}
