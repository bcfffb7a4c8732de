package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// Names may contain spaces, commas and quotes. Locks whose names differ only in where such a character stands are different locks, and
// none of them waits for another.
func TestLocksOfOtherNamesShareNoQueue(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		locks := []Locker{p.mutex("a b"), p.set("a", "b"), p.mutex(`a" "b`), p.mutex("[a b]"), p.mutex("a,b"), p.mutex("b a"), p.set("x y", "z"), p.set("x", "y z"), p.semaphore("a b", 1)}
		ctx, cancel := within1s(b.Context())
		defer cancel()
		var all func(context.Context, []Locker) error
		all = func(ctx context.Context, rest []Locker) error {
			if len(rest) == 0 {
				return nil
			}
			return Do(ctx, rest[0], func(ctx context.Context) error { return all(ctx, rest[1:]) })
		}
		require.NoError(t, all(ctx, locks))
	})
}

// However many goroutines of a process wait for a slot, the process has one ticket at most: each release leaves the place in the queue to
// the goroutine that has it. With a second ticket, the process would be waited for twice.
func TestAProcessHasOneTicketHoweverManyOfItsGoroutinesWait(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		s := p.semaphore("s", 2)
		var most atomic.Int64
		p.takes = 5 * time.Millisecond
		p.After(func(string) { most.Store(max(most.Load(), int64(b.tickets()))) })
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
		assert.EqualValues(t, 1, most.Load())
		assert.Zero(t, b.tickets())
	})
}

// The commit that releases a lock also puts a ticket for the next goroutine of the process into each queue, whatever the lock is, and whether
// or not the work of a Once succeeds. Otherwise, waiters of other processes that come later would be served first. The last goroutine leaves none.
func TestEachReleaseLeavesATicketForTheNextGoroutine(t *testing.T) {
	once := func(fails error) func(context.Context, *process, string) error {
		return func(ctx context.Context, p *process, key string) error {
			_, err := p.once("m").Do(ctx, KeyOf(key), func(context.Context, Run) error { time.Sleep(time.Second); return fails })
			return err
		}
	}
	in := func(lock func(*process) Locker) func(context.Context, *process, string) error {
		return func(ctx context.Context, p *process, _ string) error {
			return Do(ctx, lock(p), func(context.Context) error { time.Sleep(time.Second); return nil })
		}
	}
	for name, c := range map[string]struct {
		call    func(ctx context.Context, p *process, key string) error
		fails   error
		tickets int
	}{
		"a mutex":           {in(func(p *process) Locker { return p.mutex("m") }), nil, 1},
		"a set":             {in(func(p *process) Locker { return p.set("m", "n") }), nil, 2},
		"a Once":            {once(nil), nil, 1},
		"a Once that fails": {once(errFails), errFails, 1},
	} {
		inVirtualTime(t, func(b *bed) {
			p, left := b.process(), make(chan int, 10)
			p.After(func(step string) {
				if step == "release" || step == "finish" {
					left <- b.tickets()
				}
			})
			var all sync.WaitGroup
			for _, key := range []string{"1", "2", "3"} {
				all.Go(func() { assert.ErrorIs(t, c.call(b.Context(), p, key), c.fails, name) })
				time.Sleep(time.Millisecond)
			}
			all.Wait()
			assert.Equal(t, []int{c.tickets, c.tickets, 0}, []int{<-left, <-left, <-left}, name)
		})
	}
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

// If a goroutine waits behind others of its process, its error says only that, because the goroutine has not read who holds the lock. The
// error of the goroutine at the front names the holder.
func TestTheErrorOfAWaitSaysWhetherItsProcessIsAhead(t *testing.T) {
	for name, lock := range map[string]func(*process) locking{
		"a mutex":     func(p *process) locking { return p.mutex("l") },
		"a semaphore": func(p *process) locking { return &slotLock{Semaphore: p.semaphore("l", 1)} },
	} {
		inVirtualTime(t, func(b *bed) {
			holder, p, front := lock(b.process()), b.process(), make(chan error, 1)
			require.NoError(t, holder.Lock(b.Context()))
			go func() {
				ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
				defer cancel()
				front <- lock(p).Lock(ctx)
			}()
			time.Sleep(time.Second)
			ctx, cancel := within1s(b.Context())
			defer cancel()
			assert.ErrorContains(t, lock(p).Lock(ctx), "not acquired in 1s: context deadline exceeded (another goroutine of this process is ahead of this one in the queue)", name)
			assert.Regexp(t, `not acquired in 5s: context deadline exceeded \(held: "l\S*" by \S+ under token \d+, last heartbeat \S+ ago\)$`, (<-front).Error(), name)
			require.NoError(t, holder.Unlock(b.Context()))
		})
	}
}

// A release leaves a ticket for the next goroutine of its process, which may stop waiting at any instant of the release. The ticket then goes
// with it: other processes would leave the lock to nobody.
func TestATicketForAGoroutineThatStopsWaitingGoes(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		for _, names := range [][]string{{"m"}, {"a", "b"}} {
			for after := 3 * time.Millisecond; after < 40*time.Millisecond; after += 3 * time.Millisecond {
				p := b.process()
				p.takes = 10 * time.Millisecond
				l := p.set(names...)
				require.NoError(t, l.Lock(b.Context()))
				ctx, cancel := context.WithTimeout(b.Context(), after)
				waits, left := make(chan error, 1), 0
				next := p.set(names...)
				go func() {
					err := next.Lock(ctx)
					left = b.tickets()
					waits <- unlock(b.Context(), next, err)
				}()
				synctest.Wait()
				require.NoError(t, l.Unlock(b.Context()))
				<-waits
				if after > p.takes { // the goroutine had taken the ticket over
					assert.Zero(t, left, "after %v: the program may exit now", after)
				}
				cancel()
				time.Sleep(time.Second)
				assert.Zero(t, b.tickets(), "after %v", after)
			}
		}
	})
}
