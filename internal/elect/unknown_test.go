package elect_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

func TestClaimOfUnknownOutcome(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Machine("a")
		a.Link.Lose(nil, memstore.Once("claim"))
		b.Run(a)
		b.Until(time.Minute, func() bool { return len(b.Store.Rows()) == 1 })
		require.False(t, a.Has())
		claimed := b.Store.Rows()["mylock"].Token
		b.Until(2*fleet.Lease, a.Has)
		assert.Greater(t, a.Token(), spindle.Token(table.TokenAt(claimed)))
		assert.WithinRange(t, time.Now(), claimed.Add(fleet.Lease), claimed.Add(fleet.Lease+fleet.Lease/50))
		b.End(a)
	})
}

// A machine whose claims are applied but never answered has a shorter lease than the others. They must not wait forever
// for the end of its claims, which it would renew before that.
func TestClaimsThatAreNeverAnsweredKeepTheLockFromNobody(t *testing.T) {
	for name, opts := range map[string][]spindle.Option{"plain": nil, "reclaims": {spindle.WithReclaim()}} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				sick := b.Machine("sick", opts...)
				sick.Link.Lose(nil, func(step string) bool { return step == "claim" })
				b.Run(sick)
				b.Until(time.Minute, func() bool { return len(b.Store.Rows()) == 1 })
				healthy := b.Machine("healthy", spindle.WithLease(3*fleet.Lease))
				b.Run(healthy)
				b.Until(3*fleet.Lease, healthy.Has)
				time.Sleep(time.Hour)
				assert.True(t, healthy.Has())
				assert.Equal(t, "elected", healthy.Seen.Kinds())
				b.End(sick, healthy)
			})
		})
	}
}

func TestConfirmOfUnknownOutcomeIsToldByAHeartbeat(t *testing.T) {
	for name, fault := range map[string]func(*memstore.Link){
		"reply lost":   func(l *memstore.Link) { l.Lose(nil, memstore.Once("confirm")) },
		"request lost": func(l *memstore.Link) { l.Lose(memstore.Once("confirm"), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a := b.Machine("a")
				fault(a.Link)
				b.Run(a)
				b.Until(fleet.Lease, a.Has)
				time.Sleep(10 * fleet.Lease)
				assert.True(t, a.Has())
				assert.Equal(t, "elected", a.Seen.Kinds())
				b.End(a)
			})
		})
	}
}

func TestReleaseOfUnknownOutcome(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		a.Link.Lose(nil, memstore.Once("release"))
		a.Stop()
		assert.NoError(t, <-a.Done)
		assert.Len(t, b.Store.Rows(), 1)
	})
}

func TestASlowConfirmationLeavesTimeForTheFirstHeartbeat(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Machine("a", spindle.WithLease(time.Second))
		a.Link.Lose(func(step string) bool {
			if step == "confirm" {
				time.Sleep(700 * time.Millisecond)
			}
			return false
		}, nil)
		b.Run(a)
		b.Until(time.Minute, a.Has)
		time.Sleep(time.Hour)
		assert.Equal(t, "elected", a.Seen.Kinds())
		b.End(a)
	})
}

func TestACandidateThatCannotConfirmLeavesTheLockToOthers(t *testing.T) {
	for name, err := range map[string]error{
		"for ever":           status.Error(codes.FailedPrecondition, "the value is longer than the column"),
		"as far as is known": errors.New("no reply"),
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				sick := b.Machine("sick", spindle.WithLease(fleet.Lease/2))
				sick.Link.Refuse(fleet.Refusing("confirm", err))
				b.Run(sick)
				well := b.Start("well")
				b.Until(5*fleet.Lease, well.Has)
				token := well.Token()
				time.Sleep(100 * fleet.Lease)
				assert.Equal(t, token, well.Token())
				b.End(well, sick)
			})
		})
	}
}

func TestAConfirmationThatIsRunTwiceIsNotSupersededByItself(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Machine("a", spindle.WithLockDelay(time.Minute))
		a.Link.Again(memstore.Once("confirm"))
		b.Run(a)
		b.Until(fleet.Lease/10, a.Has)
		assert.Equal(t, 1, a.Link.Counts()["claim"])
		b.End(a)
	})
}

func TestAnUnclearAnswerToAHeartbeatIsDecidedByTheLeaseRow(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Machine("a")
		b.Run(a)
		token := a.Token()
		require.NotZero(t, token)

		a.Link.Refuse(fleet.Refusing("heartbeat", table.ErrNotFound))
		time.Sleep(fleet.Lease / 2)
		assert.Equal(t, token, a.Token(), "the lease row is there")
		a.Link.Refuse(nil)
		b.Until(fleet.Lease/2, func() bool { return a.Seen.Last().Kind == spindle.Safe })
		assert.Equal(t, token, a.Token())

		a.Link.Refuse(fleet.Refusing("heartbeat", table.ErrNotFound))
		b.Operator(table.Write{Kind: table.Delete, Name: table.LeaseKey("mylock", table.Token(token))})
		b.Until(fleet.Lease/2, func() bool { return a.Token() != token })
		lost := a.Seen.All()[slices.IndexFunc(a.Seen.All(), func(e spindle.Event) bool { return e.Kind == spindle.Lost })]
		assert.ErrorIs(t, lost.Err, spindle.ErrSuperseded, "the lease row is gone")
		a.Link.Refuse(nil)
		b.End(a)
	})
}
func TestAStopWithinAnElectionThatIsCutOffTakesSeconds(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Machine("a", spindle.WithLease(time.Hour))
		a.Link.Lose(func(step string) bool { return step == "confirm" || step == "heartbeat" }, nil)
		b.Run(a)
		time.Sleep(time.Second)
		start := time.Now()
		a.Stop()
		<-a.Done
		assert.Less(t, time.Since(start), 31*time.Second, "an attempt at each of three steps")
	})
}
