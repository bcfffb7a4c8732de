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
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
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

func TestTakeoverAtTheInstantTheLeaseExpires(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Start("b")
		time.Sleep(time.Minute)
		a.Link.Cut()
		first := a.Token()
		last := b.Store.Rows()["mylock"].Heartbeat
		b.Until(2*fleet.Lease, c.Has)
		assert.WithinRange(t, time.Now(), last.Add(fleet.Lease), last.Add(fleet.Lease+fleet.Lease/50))
		assert.Greater(t, c.Token(), first)
		b.End(a, c)
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

func TestHeartbeatsThatFailForLessThanALease(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Start("b")
		token := a.Token()
		for range 20 {
			a.Link.Cut()
			time.Sleep(fleet.Lease / 2)
			a.Link.Mend()
			b.Until(fleet.Lease/2, func() bool { return a.Seen.Last().Kind != spindle.Jeopardy })
			time.Sleep(fleet.Lease)
			require.Equal(t, token, a.Token())
			require.False(t, c.Has())
		}
		assert.Contains(t, a.Seen.Kinds(), "elected, jeopardy, safe, jeopardy, safe")
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
		for range 50 {
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

func TestAnOutageLongerThanALease(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		ms := []*fleet.Machine{b.Start("a"), b.Start("b"), b.Start("c")}
		for _, m := range ms {
			m.Link.Cut()
		}
		time.Sleep(10 * time.Hour)
		for _, m := range ms {
			require.False(t, m.Has())
			m.Link.Mend()
		}
		holders := func() (n int) {
			for _, m := range ms {
				if m.Has() {
					n++
				}
			}
			return n
		}
		b.Until(fleet.Lease, func() bool { return holders() == 1 })
		for range 1000 {
			time.Sleep(fleet.Lease / 100)
			require.Equal(t, 1, holders())
		}
		b.End(ms...)
	})
}

func TestAHundredCandidates(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var ms []*fleet.Machine
		for range 100 {
			ms = append(ms, b.Start("m"))
		}
		holder := func() (h *fleet.Machine) {
			for _, m := range ms {
				if m.Has() {
					require.Nil(t, h, "two holders")
					h = m
				}
			}
			return h
		}
		for range 5 {
			old := holder()
			require.NotNil(t, old)
			last := b.Store.Rows()["mylock"].Heartbeat
			old.Link.Cut()
			b.Until(2*fleet.Lease, func() bool { h := holder(); return h != nil && h != old })
			assert.WithinRange(t, time.Now(), last.Add(fleet.Lease), last.Add(fleet.Lease+fleet.Lease/50))
			old.Link.Mend()
		}
		b.End(ms...)
	})
}
