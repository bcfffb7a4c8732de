package spindle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A lost message costs one attempt, and not all of the caller's time.
func TestARequestSurvivesALostMessage(t *testing.T) {
	for _, lost := range []struct {
		step string
		nth  int
	}{{"lease-record", 1}, {"lease-record", 3}, {"ask", 1}, {"ask", 2}} {
		for _, reply := range []bool{false, true} {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a, c := b.Start("a", spindle.WithHandover()), b.Start("c", spindle.WithHandover())
				operator := b.Machine("operator")
				n := 0
				loses := func(step string) bool {
					if step == lost.step {
						n++
					}
					return step == lost.step && n == lost.nth
				}
				if reply {
					operator.Link.Lose(nil, loses)
				} else {
					operator.Link.Lose(loses, nil)
				}
				limited, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				began := time.Now()
				h, err := operator.RequestHandover(limited, a.Token())
				require.NoError(t, err)
				assert.Equal(t, "c", h.To.ID)
				assert.Less(t, time.Since(began), 3*fleet.Lease)
				b.End(a, c)
			})
		}
	}
}

// The lease of a token that was not superseded can have expired. In that case no process leads, and none could accept a
// request.
func TestARequestToAHolderThatIsSilentSaysThatNobodyLeads(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithHandover())
		token := a.Token()
		a.Link.Cut()
		time.Sleep(fleet.Lease + time.Second)
		_, err := b.Machine("operator").RequestHandover(context.Background(), token)
		assert.ErrorIs(t, err, spindle.ErrNoLeader)
		assert.NotErrorIs(t, err, spindle.ErrSuperseded)
		b.End(a)
	})
}

// A claim that is withdrawn frees a lock that had no holder before the claim either.
func TestTheGapOfAHandoverIsAtLeastTheTimeWithoutAHolder(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithHandover())
		time.Sleep(time.Minute)
		c := b.Machine("c")
		c.Link.Refuse(fleet.Refusing("confirm", errors.New("no space")))
		b.Run(c)
		got := make(chan spindle.Handover, 1)
		token := a.Token()
		go func() {
			h, err := b.Machine("operator").RequestHandover(context.Background(), token)
			assert.NoError(t, err)
			got <- h
		}()
		time.Sleep(time.Second)
		a.Link.Cut() // the machine crashes before it accepts
		died := time.Now()
		b.Until(5*fleet.Lease, func() bool { return b.Store.Rows()[fleet.Name].Heartbeat.IsZero() })
		time.Sleep(3 * time.Second)
		d := b.Start("d")
		b.Until(5*fleet.Lease, d.Has)
		without := time.Since(died) - fleet.Lease
		h := <-got
		assert.GreaterOrEqual(t, h.Gap, without)
		assert.LessOrEqual(t, h.Gap, without+fleet.Lease)
		b.End(a, c, d)
	})
}

// A release from which a claimant later withdraws was still a release, so the gap counts from the release.
func TestTheGapOfAHandoverCountsFromTheRelease(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithHandover())
		time.Sleep(time.Minute)
		got := make(chan spindle.Handover, 1)
		token := a.Token()
		go func() {
			h, err := b.Machine("operator").RequestHandover(context.Background(), token)
			assert.NoError(t, err)
			got <- h
		}()
		b.Until(3*fleet.Lease, func() bool { return !a.Has() })
		a.Link.Cut()
		freed := b.Store.Rows()[fleet.Name].Token
		time.Sleep(time.Second)
		c := b.Machine("c")
		c.Link.Refuse(fleet.Refusing("confirm", errors.New("no space")))
		b.Run(c)
		b.Until(2*fleet.Lease, func() bool { row := b.Store.Rows()[fleet.Name]; return row.Writer == "c" && row.Heartbeat.IsZero() })
		time.Sleep(time.Second)
		d := b.Start("d")
		b.Until(fleet.Lease, d.Has)
		h := <-got
		assert.InDelta(t, d.Token().Time().Sub(freed).Seconds(), h.Gap.Seconds(), 0.01)
		b.End(a, c, d)
	})
}
