package lock

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// tickets returns how many tickets are in the table.
func (b *bed) tickets() (n int) {
	for name := range b.store.Rows() {
		if table.IsTicket(name) {
			n++
		}
	}
	return n
}

// A mutex and a semaphore of one name are different locks, although their goroutines wait in one process. Neither waits for the other, not
// even inside its Do.
func TestAMutexAndASemaphoreOfOneNameShareNoQueue(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m, s := p.mutex("x"), p.semaphore("x", 1)
		assert.NotEqual(t, m.contender.queue(), s.contender.queue())
		ctx, cancel := within1s(b.Context())
		defer cancel()
		require.NoError(t, Do(ctx, m, func(ctx context.Context) error {
			return Do(ctx, s, func(ctx context.Context) error {
				assert.NotZero(t, m.Token())
				assert.NotZero(t, s.Permit(ctx).Token())
				_, err := s.Acquire(ctx)
				assert.ErrorIs(t, err, ErrHeld)
				assert.ErrorIs(t, m.Lock(ctx), ErrHeld)
				return nil
			})
		}))
		require.NoError(t, Do(ctx, s, func(ctx context.Context) error {
			return Do(ctx, m, func(context.Context) error { return nil })
		}))
	})
}

// However many goroutines of a process wait for a slot, the process has one ticket at most: each release leaves the place in the queue to
// the goroutine that has it. With a second ticket, the process would be waited for twice.
func TestAProcessHasOneTicketHoweverManyOfItsGoroutinesWait(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		s := p.semaphore("s", 2)
		var one, more atomic.Bool
		p.takes = 5 * time.Millisecond
		p.After(func(string) {
			n := b.tickets()
			one.Store(one.Load() || n == 1)
			more.Store(more.Load() || n > 1)
		})
		done := make(chan error)
		for range 8 {
			go func() {
				permit, err := s.Acquire(b.Context())
				if err == nil {
					time.Sleep(time.Second)
					err = permit.Release(b.Context())
				}
				done <- err
			}()
		}
		for range 8 {
			require.NoError(t, <-done)
		}
		time.Sleep(time.Minute)
		assert.True(t, one.Load())
		assert.False(t, more.Load())
		assert.Zero(t, b.tickets())
	})
}

// A goroutine whose ctx ends while others of its process are ahead leaves the process's queue at once. Otherwise, the process would keep
// its ticket, and goroutines, for calls that have returned.
func TestWhoStopsWaitingLeavesTheQueueOfItsProcess(t *testing.T) {
	for name, wait := range map[string]func(*process) (queue string, call func(context.Context) error){
		"a semaphore": func(p *process) (string, func(context.Context) error) {
			s := p.semaphore("l", 1)
			return s.contender.queue(), func(ctx context.Context) error {
				permit, err := s.Acquire(ctx)
				if permit != nil {
					_ = permit.Release(ctx)
				}
				return err
			}
		},
		"a mutex": func(p *process) (string, func(context.Context) error) {
			m := p.mutex("l")
			return m.contender.queue(), func(ctx context.Context) error { return Do(ctx, m, func(context.Context) error { return nil }) }
		},
	} {
		inVirtualTime(t, func(b *bed) {
			holder, p := b.process(), b.process()
			m, slot := holder.mutex("l"), holder.semaphore("l", 1)
			require.NoError(t, m.Lock(b.Context()))
			permit, err := slot.Acquire(b.Context())
			require.NoError(t, err)
			key, call := wait(p)
			ctx, cancel := within1s(b.Context())
			defer cancel()
			done, first := make(chan error, 5), make(chan error, 1)
			go func() { first <- call(b.Context()) }()
			time.Sleep(100 * time.Millisecond)
			for range 5 {
				go func() { done <- call(ctx) }()
			}
			for range 5 {
				require.ErrorIs(t, <-done, context.DeadlineExceeded)
			}
			synctest.Wait()
			queues.Lock()
			q := queues.byKey[key]
			users, wants := q.users, q.wants
			queues.Unlock()
			assert.Equal(t, 1, users, name)
			assert.Zero(t, wants, name)
			require.NoError(t, m.Unlock(b.Context()))
			require.NoError(t, permit.Release(b.Context()))
			require.NoError(t, <-first)
			queues.Lock()
			assert.NotContains(t, queues.byKey, key)
			queues.Unlock()
		})
	}
}

// The last look at what is done, once the lock is held, ends with the caller's ctx. A program that stops during an outage could not stop
// otherwise. The work has not run, and the lock is given back or left to expire.
func TestOnceEndsWithItsCtxWhileItLooksForTheLastTime(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.After(func(step string) {
			if step == "confirm" {
				p.Lose(func(step string) bool { return step == "done" }, nil)
			}
		})
		ctx, cancel := within1s(b.Context())
		defer cancel()
		o, start := p.once("nightly", spindle.WithLease(time.Hour)), time.Now()
		time.AfterFunc(30*time.Second, func() { p.After(nil); p.Mend() })
		ran, err := o.Do(ctx, KeyOf("1"), succeedNot)
		assert.False(t, ran)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(30 * time.Second)
		ran, err = o.Do(b.Context(), KeyOf("1"), succeed)
		assert.NoError(t, err)
		assert.True(t, ran)
		assert.Less(t, time.Since(start), time.Minute, "it was given back")
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

// An error says what the last poll has found, and not who held the lock before: an operator would look for a process that has long gone.
func TestTheErrorOfAWaitDoesNotNameAHolderThatHasGone(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		holder, p := b.process().mutex("m", spindle.WithID("the holder")), b.process()
		require.NoError(t, holder.Lock(b.Context()))
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(20*time.Second, func() { b.rewrite("m", table.Token(holder.Token())) })
		err := p.mutex("m").Lock(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "newer version")
		assert.False(t, strings.Contains(err.Error(), "held: "), err.Error())
	})
}

// Inside calls of Do that use different sizes, the smallest one counts only while its slot is held. Whoever has lost that slot can acquire
// all slots of the larger semaphore again, and is not told that it would wait for itself.
func TestASmallerSizeDoesNotCountOnceItsSlotIsLost(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inVirtualTime(t, func(b *bed) {
			p := b.process()
			small, large := p.semaphore("s", 1), p.semaphore("s", 2)
			err := Do(b.Context(), small, func(ctx context.Context) error {
				on := context.WithoutCancel(ctx)
				if lost {
					b.lose("s/slot/0000", small.Permit(ctx).Token())
					time.Sleep(time.Minute)
					assert.Zero(t, small.Permit(ctx).Token())
					q := b.process()
					q.clock = &stepping{} // it chooses the last slot
					other, err := q.semaphore("s", 2).Acquire(on)
					require.NoError(t, err)
					return Do(on, large, func(ctx context.Context) error {
						require.NoError(t, other.Release(ctx))
						limited, cancel := within1s(ctx)
						defer cancel()
						permit, err := large.Acquire(limited)
						require.NoError(t, err)
						return permit.Release(ctx)
					})
				}
				_, err := large.Acquire(on)
				assert.ErrorIs(t, err, ErrHeld)
				return nil
			})
			if lost {
				assert.ErrorIs(t, err, ErrNotHeld)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}
