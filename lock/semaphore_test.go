package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
)

// cutOffWhileItLooksAtTheOthers cuts the process off when it has its slot but has not seen the other holders yet.
func cutOffWhileItLooksAtTheOthers(p *process) {
	p.After(func(step string) {
		if step == "confirm" {
			p.Cut()
		}
	})
}

// TryAcquire may get to the front of its process's queue, if the goroutine there has left just now. It does not wait there.
func TestTryAcquireDoesNotWaitAtTheFrontOfTheQueue(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		permit, ok, err := b.process().semaphore("s", 1).TryAcquire(b.Context())
		require.True(t, ok, "%v", err)
		k := b.process().semaphore("s", 1).seeker(true, new(atomic.Bool))
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		h, err := k.wait(ctx, func(ctx context.Context) (*held, error) {
			require.True(t, k.enter(ctx))
			return k.seek(ctx)
		})
		assert.Nil(t, h)
		assert.ErrorIs(t, err, errFull)
		require.NoError(t, permit.Release(b.Context()))
	})
}

func TestTryAcquireWaitsForNoOutage(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		cutOffWhileItLooksAtTheOthers(p)
		start := time.Now()
		_, ok, err := p.semaphore("s", 3, spindle.WithLease(time.Hour)).TryAcquire(b.Context())
		assert.False(t, ok)
		assert.Error(t, err)
		assert.LessOrEqual(t, time.Since(start), 10*time.Second)
		p.After(nil)
		p.Mend()
		time.Sleep(time.Minute) // well within the lease
		for name, row := range b.store.Rows() {
			assert.True(t, row.Heartbeat.IsZero() || isFree(row), "%s was given back", name)
		}
	})
}

func TestAcquireEndsWithItsCtx(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		cutOffWhileItLooksAtTheOthers(p)
		ctx, cancel := within1s(b.Context())
		defer cancel()
		start := time.Now()
		_, err := p.semaphore("s", 3, spindle.WithLease(10*time.Minute)).Acquire(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestAcquireGoesOnWhenASlotIsLostBeforeItIsHandedOut(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		cutOffWhileItLooksAtTheOthers(p)
		time.AfterFunc(time.Minute, func() { p.After(nil); p.Mend() })
		s := p.semaphore("s", 1)
		slot, err := s.Acquire(b.Context())
		require.NoError(t, err)
		assert.NotZero(t, slot.Token(), "what Acquire returns is held")
		require.NoError(t, slot.Release(b.Context()))
		assert.NotContains(t, queues.byKey, s.contender.queue())
	})
}

func TestFreeSlotsAreTakenSideBySide(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.takes = 10 * time.Millisecond
		var all sync.WaitGroup
		var got atomic.Int32
		start := time.Now()
		for i := range 40 {
			all.Go(func() {
				s := p.semaphore("s", 40)
				slot, ok := (*Permit)(nil), true
				var err error
				if i%2 == 0 {
					slot, err = s.Acquire(b.Context())
				} else {
					slot, ok, err = s.TryAcquire(b.Context())
				}
				assert.NoError(t, err)
				assert.Equal(t, 40*time.Millisecond, time.Since(start), "a look, a claim, a confirmation, and a look at the others")
				if ok {
					got.Add(1)
					time.Sleep(time.Minute)
					assert.NoError(t, slot.Release(b.Context()))
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 40, got.Load())
	})
}

func TestThoseWhoFindNoSlotQueue(t *testing.T) {
	const slots = 30
	inVirtualTime(t, func(b *bed) {
		holder, p := b.process(), b.process()
		var held []*Permit
		for range slots {
			slot, err := holder.semaphore("s", slots).Acquire(b.Context())
			require.NoError(t, err)
			held = append(held, slot)
		}
		p.takes = 10 * time.Millisecond
		s := p.semaphore("s", slots)
		var all sync.WaitGroup
		var mu sync.Mutex
		var last time.Time
		for range slots {
			all.Go(func() {
				slot, err := s.Acquire(b.Context())
				assert.NoError(t, err)
				mu.Lock()
				last = time.Now()
				mu.Unlock()
				time.Sleep(time.Minute)
				assert.NoError(t, slot.Release(b.Context()))
			})
		}
		time.Sleep(time.Minute)
		looks := len(p.sent())
		assert.Less(t, looks, slots+200, "one of the queue looks at a time, 20 times a lease and a little more")
		assert.Greater(t, looks, slots+115, "and no more rarely: it is the next")
		_, ok, err := s.TryAcquire(b.Context())
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Len(t, p.sent(), looks, "who tries does not go before those who wait")
		free := time.Now()
		for _, slot := range held {
			require.NoError(t, slot.Release(b.Context()))
		}
		all.Wait()
		assert.Less(t, last.Sub(free), 3*time.Second, "each gives its turn to the next once it has chosen a slot")
	})
}

func TestASemaphoreMindsOnlyItsSlots(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		ctx := b.Context()
		require.NoError(t, b.process().mutex(Name("parking", "slot", "0042")).Lock(ctx))
		require.NoError(t, b.process().mutex("parking/slot/0001").Lock(ctx), "this is one of its slots, which is taken then")
		require.NoError(t, b.process().mutex("parking/slot/0001_b").Lock(ctx))
		_, err := b.process().semaphore("parking/slot/0001", 2).Acquire(ctx)
		require.NoError(t, err)
		for range 2 {
			_, ok, err := b.process().semaphore("parking", 3).TryAcquire(ctx)
			require.NoError(t, err)
			assert.True(t, ok)
		}
		_, ok, err := b.process().semaphore("parking", 3).TryAcquire(ctx)
		require.NoError(t, err)
		assert.False(t, ok, "two of three slots, and the mutex")
	})
}

func TestASemaphoreThatCannotConfirmCoolsDownHoweverOftenItQueues(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.takes = 5 * time.Millisecond
		p.Refuse(failing(refused(codes.Internal), "confirm", "heartbeat"))
		ctx, cancel := within1s(b.Context())
		defer cancel()
		_, err := p.semaphore("s", 2, spindle.WithLease(200*time.Millisecond)).Acquire(ctx)
		assert.ErrorContains(t, err, "refused here", "why, not who holds what is free")
		claims := 0
		for _, step := range p.sent() {
			if step == "claim" {
				claims++
			}
		}
		assert.InDelta(t, 3, claims, 1, "a lease to try, and a lease to cool down")
	})
}

// A poll that goes on after its Acquire has ended takes no slot away from the other goroutines of its process. The process
// holds another slot, so it still has its queue and the record of its slots.
func TestAPollThatOutlivesItsAcquireTakesNoSlot(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		s := p.semaphore("s", 2)
		held, err := s.Acquire(b.Context())
		require.NoError(t, err)
		p.After(func(step string) {
			if step == "observe" { // the reply comes when nobody waits for it any more
				time.Sleep(2 * time.Second)
			}
		})
		ctx, cancel := within1s(b.Context())
		_, err = s.Acquire(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(10 * time.Second)
		p.After(nil)
		permit, ok, err := s.TryAcquire(b.Context())
		require.NoError(t, err)
		require.True(t, ok, "the other slot is free")
		assert.NoError(t, permit.Release(b.Context()))
		assert.NoError(t, held.Release(b.Context()))
	})
}

// A slot that is lost before it is handed out is no slot. TryAcquire says why it has none, because it may not try again; Acquire goes on.
func TestTryAcquireHandsOutNoSlotThatIsLost(t *testing.T) {
	const lease = 10 * time.Second
	for _, try := range []bool{true, false} {
		inVirtualTime(t, func(b *bed) {
			p := b.process()
			s := p.semaphore("s", 2, spindle.WithLease(lease))
			var confirmed, over atomic.Bool
			p.Refuse(func(step string) error {
				if !over.Load() && step == "heartbeat" {
					return context.DeadlineExceeded
				}
				return nil
			})
			p.After(func(step string) {
				if step == "confirm" {
					confirmed.Store(true)
				}
				if !over.Load() && confirmed.Load() && step == "observe" { // the reply comes when the lease is over
					time.Sleep(2 * lease)
					over.Store(true)
				}
			})
			var permit *Permit
			var err error
			if try {
				permit, _, err = s.TryAcquire(b.Context())
				assert.Nil(t, permit)
				assert.ErrorIs(t, err, ErrLost)
				assert.ErrorIs(t, err, elect.ErrExpired)
			} else {
				permit, err = s.Acquire(b.Context())
				require.NoError(t, err)
				assert.NotZero(t, permit.Token())
				require.NoError(t, permit.Release(b.Context()))
			}
			assert.True(t, over.Load())
		})
	}
}
