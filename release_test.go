package spindle_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// resent makes the machine's client send its first release again after a while, as a client does after it has lost a
// reply.
func resent(m *fleet.Machine, after time.Duration, meanwhile func()) {
	done := false
	m.Link.Again(func(step string) bool {
		if step != "release" || done {
			return false
		}
		done = true
		meanwhile()
		time.Sleep(after)
		return true
	})
}

// The client sends a release again that was applied. A quick successor can be the leader by then.
func TestAReleaseThatWasSentAgainIsNoLoss(t *testing.T) {
	for name, opts := range map[string][]spindle.Option{"": nil, "with WithReclaim": {spindle.WithReclaim()}} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a, c := b.Start("a", opts...), b.Start("c")
				time.Sleep(time.Minute)
				resent(a, fleet.Lease/10, func() {})
				require.NoError(t, a.StepDown(context.Background()))
				assert.True(t, c.Has(), "the successor was there before the release was refused")
				b.End(a, c)
			})
		})
	}
}

// A candidate whose Run ends after the reply to its claim was lost frees that claim. The others need not wait for a lease.
func TestACandidateThatStopsFreesAClaimWithoutAReply(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Machine("a")
		a.Link.Lose(nil, func(step string) bool { return step == "claim" })
		b.Run(a)
		time.Sleep(fleet.Lease / 100)
		b.End(a)
		c := b.Start("c")
		b.Until(fleet.Lease/2, c.Has)
		b.End(c)
	})
}

// The lock was taken away by an operator, so the term is lost, whatever the client sends again.
func TestAReleaseAfterTheLockWasBrokenIsALoss(t *testing.T) {
	for _, successor := range []bool{false, true} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a")
			if successor {
				b.Start("c")
			}
			time.Sleep(time.Minute)
			token := table.Token(a.Token())
			a.Link.Lose(func(step string) bool { return step == "heartbeat" }, nil)
			wait := make(chan struct{})
			a.Link.Refuse(func(step string) error {
				if step == "release" {
					<-wait
				}
				return nil
			})
			done := stepDown(context.Background(), a)
			time.Sleep(fleet.Lease / 2)
			require.NoError(t, table.Table{Store: b.Store}.Break(context.Background(), token, fleet.Name))
			time.Sleep(fleet.Lease / 10)
			close(wait)
			assert.ErrorIs(t, <-done, spindle.ErrSuperseded)
			a.Link.Refuse(nil)
			b.End(a)
		})
	}
}

// A release that is refused after the lease has expired proves nothing, because another candidate may have claimed the
// lock when the lease expired.
func TestAReleaseAfterTheLeaseIsALoss(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Start("c")
		time.Sleep(time.Minute)
		a.Link.Lose(func(step string) bool { return step == "release" || step == "heartbeat" }, nil)
		done := stepDown(context.Background(), a)
		b.Until(3*fleet.Lease, c.Has)
		assert.Error(t, <-done)
		b.End(a, c)
	})
}

// The row that records that a lock was broken is deleted together with the lock row.
func TestAPrunedLockLeavesNoRow(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		locks := table.Table{Store: b.Store}
		require.NoError(t, locks.Break(context.Background(), table.Token(a.Token()), fleet.Name))
		b.End(a)
		require.Len(t, b.Store.Rows(), 2)
		listed, _, err := operator.List(context.Background(), locks, "", true)
		require.NoError(t, err)
		assert.Len(t, listed, 1, "it is no lock")
		time.Sleep(48 * time.Hour)
		for seen, err := range operator.Prunable(context.Background(), locks, operator.Ages{Released: 24 * time.Hour}) {
			require.NoError(t, err)
			n, err := locks.Prune(context.Background(), seen...)
			require.NoError(t, err)
			assert.Equal(t, 1, n)
		}
		assert.Empty(t, b.Store.Rows())
	})
}
