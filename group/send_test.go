package group

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// When Spanner aborts members' transactions because of each other, the members send one commit at a time until no
// commit has been aborted for half a lease.
func TestAMemberWhoseClaimsAreAbortedSendsOneAtATime(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, aborts := c.process("a", Numbered(64), batchesOf(16)), true
		a.link.Refuse(func(step string) error {
			if aborts && step == "claim-partitions" {
				return table.ErrAborted
			}
			return nil
		})
		slowly(a, lease/200)
		c.run(a)
		c.sleep(lease / 10) // the first four are given up
		aborts = false
		most := 0
		c.until(2*lease, "a to have all", func() bool { most = max(most, a.asked.moves()); return spreadOver(64, a)() })
		assert.Equal(t, 1, most)
	})
}

// After Spanner has aborted a commit of a member again and again, the member tries its halves only after a pause that is
// longer than a member repeats a commit. Of members that abort each other, one therefore succeeds in the meantime.
func TestAMemberWhoseCommitWasAbortedMakesRoomForOthers(t *testing.T) {
	for _, step := range []string{"claim-partitions", "confirm-partitions"} {
		inVirtualTime(t, func(c *cluster) {
			var sent []time.Time
			a := c.process("a", Numbered(64))
			a.link.Refuse(func(s string) error {
				if s == "claim-partitions" || s == "confirm-partitions" {
					sent = append(sent, time.Now())
				}
				if s == step {
					return table.ErrAborted
				}
				return nil
			})
			c.run(a)
			c.sleep(lease / 4)
			repeats := 1
			for repeats < len(sent) && sent[repeats].Sub(sent[repeats-1]) < lease/100 {
				repeats++
			}
			require.Less(t, repeats, len(sent), "%s: it is tried without end", step)
			lasted, paused := sent[repeats-1].Sub(sent[0]), sent[repeats].Sub(sent[repeats-1])
			assert.InDelta(t, lease/20, lasted, float64(lease/100), step)
			assert.Greater(t, paused, lasted, step)
		})
	}
}

// A claim that Spanner aborts for a while costs a member with a long lease seconds, and not minutes. The member makes no poll for
// it, because it knows that nothing was applied, and does not count any partition as suspect.
func TestAClaimThatIsAbortedCostsSecondsHoweverLongTheLease(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(64), spindle.WithLease(time.Hour))
		began := time.Now()
		a.link.Refuse(func(step string) error {
			if step == "claim-partitions" && time.Since(began) < 30*time.Second {
				return table.ErrAborted
			}
			return nil
		})
		c.run(a)
		c.until(time.Minute, "a to have all", spreadOver(64, a))
		assert.NotContains(t, a.log.String(), "claim: ")
	})
}

// A member whose claims are aborted without end reports this, and not that its own time limit has ended.
func TestTheReasonOfAClaimThatIsAbortedIsKept(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		h := c.inHand(c.process("a", Numbered(1), spindle.WithLease(time.Hour)))
		defer h.letGo()
		limited, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		assert.Equal(c.t, table.ErrAborted, h.send.insist(limited, func(ctx context.Context) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return table.ErrAborted
		}))
	})
}

// The pauses of a member whose claims all fail grow, and begin anew once one succeeds.
func TestASuccessEndsThePausesBetweenClaims(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		_, h := c.holding(1)
		defer h.letGo()
		m, clock := &h.moves, h.polls.clock
		for range 2 {
			m.slow(true)
			assert.Less(t, m.pause.Pause(clock), lease/50)
			for range 9 {
				m.paused = elect.PauseFor(clock, m.pause.Pause(clock))
			}
			assert.Greater(t, m.paused.Left(clock), lease/5)
			assert.Zero(t, m.width())
			m.succeeded()
			assert.Equal(t, lanes, m.width())
		}
	})
}
