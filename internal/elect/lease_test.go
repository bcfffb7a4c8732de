package elect_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

func TestCostAtRest(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		leader, follower := b.Start("a"), b.Start("b")
		time.Sleep(fleet.Lease)
		leader.Link.Counts()
		follower.Link.Counts()
		time.Sleep(100 * fleet.Lease)
		assert.InDelta(t, 300, leader.Link.Counts()["heartbeat"], 2)
		reads := follower.Link.Counts()
		assert.LessOrEqual(t, reads["observe"], 350)
		assert.Zero(t, reads["lease-record"], "the lease record of a token that was seen is cached")
		b.End(follower, leader)
	})
}

func TestAHolderThatIsCutOffStepsDownFirst(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var ended time.Time
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), spindle.ErrExpired)
			ended = time.Now()
		}))
		c := b.Start("b")
		time.Sleep(time.Minute)
		last := b.Store.Rows()["mylock"].Heartbeat
		a.Link.Cut()
		b.Until(2*fleet.Lease, func() bool { assert.False(t, a.Has() && c.Has()); return !a.Has() })
		assert.False(t, c.Has())
		assert.WithinRange(t, ended, last.Add(fleet.Lease-fleet.Lease/50), last.Add(fleet.Lease))
		b.Until(fleet.Lease, c.Has)
		assert.Equal(t, "elected, jeopardy, lost", a.Seen.Kinds())
		b.End(c, a)
	})
}

func TestTheHoldersLeaseCounts(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		long, short := b.Start("long", spindle.WithLease(time.Minute)), b.Start("short", spindle.WithLease(time.Second))
		time.Sleep(10 * time.Minute)
		require.True(t, long.Has())
		long.Link.Cut()
		last := b.Store.Rows()["mylock"].Heartbeat
		b.Until(2*time.Minute, func() bool { require.False(t, long.Has() && short.Has()); return short.Has() })
		assert.False(t, time.Now().Before(last.Add(time.Minute)))
		long.Link.Mend()
		time.Sleep(time.Minute)
		short.Link.Cut()
		assert.Less(t, b.Until(time.Minute, long.Has), 2*time.Second, "the short lease is not slept past")
		b.End(short, long)
	})
}

func TestLockDelay(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a", spindle.WithLockDelay(time.Minute)), b.Start("b", spindle.WithLockDelay(time.Minute))
		a.Stop()
		<-a.Done
		assert.Less(t, b.Until(fleet.Lease, c.Has), fleet.Lease/2, "a released lock is free at once")
		b.Run(a)
		last := b.Store.Rows()["mylock"].Heartbeat
		c.Link.Cut()
		b.Until(2*time.Minute, a.Has)
		assert.WithinRange(t, time.Now(), last.Add(fleet.Lease+time.Minute), last.Add(fleet.Lease+time.Minute+fleet.Lease/50))
		b.End(c, a)
	})
}

func TestHandoverTakesAPoll(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Start("b")
		for range 10 {
			a.Stop()
			require.NoError(t, <-a.Done)
			assert.LessOrEqual(t, b.Until(fleet.Lease, c.Has), fleet.Lease/3+time.Millisecond)
			b.Run(a)
			time.Sleep(fleet.Lease)
			c.Stop()
			require.NoError(t, <-c.Done)
			b.Until(fleet.Lease, a.Has)
			b.Run(c)
		}
		b.End(c, a)
	})
}

func TestReclaim(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("pod-0", spindle.WithReclaim())
		token := a.Token()
		a.Link.Cut() // the process is killed: nothing of it reaches the table again
		again := b.Start("pod-0", spindle.WithReclaim())
		assert.Greater(t, again.Token(), token)
		b.End(again)
		a.Stop()
		<-a.Done
	})
}

func TestALeaseExpiresWhileNobodyWrites(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		b.Store.Idle = true
		a, c := b.Start("a"), b.Start("b")
		time.Sleep(time.Minute)
		a.Link.Cut()
		first := a.Token()
		last := b.Store.Rows()["mylock"].Heartbeat
		b.Until(2*fleet.Lease, func() bool { assert.False(t, a.Has() && c.Has()); return c.Has() })
		assert.WithinRange(t, time.Now(), last.Add(fleet.Lease), last.Add(fleet.Lease+fleet.Lease/50))
		assert.Greater(t, c.Token(), first)

		c.Link.Cut()
		time.Sleep(2 * fleet.Lease)
		_, err := b.Machine("onlooker").Leader(context.Background())
		assert.ErrorIs(t, err, spindle.ErrNoLeader, "what an operator sees is of the present too")
		b.End(a, c)
	})
}

func TestHeartbeatsOfLocksThatWereElectedTogetherDriftApart(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var all []*fleet.Machine
		var mu sync.Mutex
		beats := map[time.Time]int{}
		for i := range 50 {
			m := b.Named(fmt.Sprint("lock", i), fmt.Sprint(i))
			m.Link.Lose(func(step string) bool {
				mu.Lock()
				defer mu.Unlock()
				beats[time.Now().Truncate(fleet.Lease/1000)]++
				return false
			}, nil)
			all = append(all, m)
			b.Run(m)
		}
		time.Sleep(20 * fleet.Lease)
		mu.Lock()
		clear(beats)
		mu.Unlock()
		time.Sleep(fleet.Lease)
		mu.Lock()
		most := slices.Max(slices.Collect(maps.Values(beats)))
		mu.Unlock()
		assert.Less(t, most, 15, "of 50 in a thousandth of a lease")
		b.End(all...)
	})
}

func TestWallClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-5 * time.Hour, -time.Second, -fleet.Lease} {
		t.Run(step.String(), func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a, c := b.Start("a"), b.Start("b")
				token := a.Token()
				a.Clock.Wall.Add(int64(step))
				time.Sleep(10 * fleet.Lease)
				require.Equal(t, token, a.Token(), "a step back costs nothing")
				a.Link.Cut()
				a.Clock.Wall.Add(int64(step))
				last := b.Store.Rows()["mylock"].Heartbeat
				b.Until(2*fleet.Lease, func() bool { return !a.Has() })
				assert.False(t, time.Now().After(last.Add(fleet.Lease)), "and does not extend the lease")
				b.End(c, a)
			})
		})
	}
	t.Run("forward", func(t *testing.T) {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a")
			token := a.Token()
			a.Clock.Wall.Add(int64(5 * time.Hour))
			assert.False(t, a.Has(), "a step forward costs the lock at once")
			b.Until(fleet.Lease/2, a.Has)
			assert.Greater(t, a.Token(), token, "and its old term does not come back")
			assert.Equal(t, "elected, lost, elected", a.Seen.Kinds())
			b.End(a)
		})
	})
}

func TestASuspendedMachineHasLostItsLockOnResume(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		require.True(t, a.Has())
		a.Clock.Wall.Add(int64(time.Hour)) // its monotonic clock did not notice
		assert.False(t, a.Has())
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

// A confirmation that was applied, or can still be, is not taken for one that was superseded.
func TestConfirmOfUnknownOutcomeIsToldByAHeartbeat(t *testing.T) {
	for name, fault := range map[string]func(*memstore.Link){
		"run twice":    func(l *memstore.Link) { l.Again(memstore.Once("confirm")) },
		"reply lost":   func(l *memstore.Link) { l.Lose(nil, memstore.Once("confirm")) },
		"request lost": func(l *memstore.Link) { l.Lose(memstore.Once("confirm"), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a := b.Machine("a", spindle.WithLockDelay(time.Minute))
				fault(a.Link)
				b.Run(a)
				b.Until(fleet.Lease, a.Has)
				time.Sleep(10 * fleet.Lease)
				assert.True(t, a.Has())
				assert.Equal(t, "elected", a.Seen.Kinds())
				assert.Equal(t, 1, a.Link.Counts()["claim"])
				b.End(a)
			})
		})
	}
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
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "elected", a.Seen.Kinds())
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
