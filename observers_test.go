package spindle_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// What an operator or a follower does about a leader depends on the leader's lease, and not on its own: how long it waits for a lost
// reply, how often it looks, and until when it trusts what it has seen. Whoever has another lease would look too seldom or wait too long.
func TestTheLeadersLeaseCountsAndNotTheObservers(t *testing.T) {
	for _, own := range []time.Duration{100 * time.Millisecond, fleet.Lease, 24 * time.Hour} {
		for _, lost := range []string{"", "ask", "lease-record"} {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a, c := b.Start("a", spindle.WithHandover()), b.Start("c")
				operator := b.Machine("operator", spindle.WithLease(own))
				_, err := operator.Leader(context.Background())
				require.NoError(t, err)
				n := 0
				operator.Link.Lose(func(step string) bool {
					if step == lost {
						n++
					}
					return step == lost && n == map[string]int{"ask": 1, "lease-record": 2}[lost]
				}, nil)
				operator.Link.Counts()
				limited, cancel := context.WithTimeout(context.Background(), 3*fleet.Lease)
				defer cancel()
				began := time.Now()
				_, err = operator.RequestHandover(limited, a.Token())
				require.NoError(t, err, "lease %v, lost %q", own, lost)
				looks := float64(operator.Link.Counts()["lease-record"])
				if lost == "" {
					assert.InDelta(t, time.Since(began).Seconds()/fleet.Lease.Seconds()*50, looks, 5, "every fiftieth of the lease")
				}
				b.End(a, c)
			})
		}
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a")
			m := b.Start("m", spindle.WithLease(own), spindle.WithPoll(own/2))
			m.Link.Cut()
			_, seen, _ := m.Lock.Seen()
			time.Sleep(fleet.Lease - seen - time.Millisecond)
			now, cancel := context.WithCancel(context.Background())
			cancel()
			_, err := m.Wait(now)
			assert.NoError(t, err, "lease %v", own)
			time.Sleep(time.Millisecond)
			_, err = m.Wait(now)
			assert.ErrorIs(t, err, context.Canceled, "lease %v", own)
			b.End(m, a)
		})
	}
}

// A holder that gives up the lock by itself, while the request is on its way, has done what it was asked for.
func TestARequestForATermThatHasJustEndedIsNoFailure(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a", spindle.WithHandover()), b.Start("c")
		operator, token := b.Machine("operator"), a.Token()
		operator.Link.Refuse(func(step string) error {
			if step == "ask" && b.Store.Rows()[fleet.Key(token)].Name != "" {
				b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(token)})
			}
			return nil
		})
		limited, cancel := context.WithTimeout(context.Background(), 3*fleet.Lease)
		defer cancel()
		h, err := operator.RequestHandover(limited, token)
		require.NoError(t, err)
		assert.Equal(t, token, h.From.Token)
		assert.Greater(t, h.To.Token, token)
		b.End(a, c)
	})
}

// Time for which the machine was suspended counts for the age of what Seen knows, as it counts for the lease: the leader may have changed.
func TestASuspensionMakesWhatIsSeenOlder(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Start("c")
		time.Sleep(time.Minute)
		for _, m := range []*fleet.Machine{a, c} {
			_, before, _ := m.Lock.Seen()
			m.Clock.Wall.Add(int64(fleet.Lease / 4))
			_, after, ok := m.Lock.Seen()
			assert.True(t, ok)
			assert.Equal(t, fleet.Lease/4, after-before)
		}
		b.End(a, c)
	})
}

// Leader costs one read while the leader stays the same, and one more for each new leader, whoever called it before.
func TestLeaderCostsOneReadPerCallAndOnePerLeader(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		reader := b.Machine("reader")
		for range 3 {
			a := b.Start("a")
			for call := range 3 {
				leader, err := reader.Leader(context.Background())
				require.NoError(t, err)
				assert.Equal(t, a.Token(), leader.Token)
				assert.Equal(t, map[string]int{"lease-record": 1 + max(1-call, 0)}, reader.Link.Counts())
			}
			b.End(a)
		}
	})
}
