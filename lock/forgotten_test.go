package lock

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
)

// lockAndForget locks a value and drops it, like a goroutine that returns early.
//
//go:noinline
func (p *process) lockAndForget(b *bed, l locking) *held {
	require.NoError(b, l.Lock(b.Context()))
	switch l := l.(type) {
	case *Mutex:
		return l.now.Load()
	case *Set:
		return l.now.Load()
	case *slotLock:
		return l.permit.now.Load()
	}
	panic("unknown kind")
}

// collect collects garbage until the value of h has been collected. The runtime does this outside of virtual time.
func collect(b *bed, h *held) {
	for range 1000 {
		if runtime.GC(); h.by.garbage.Load() {
			return
		}
		runtime.Gosched()
	}
	require.FailNow(b, "the value that was dropped can still be reached")
}

// If a value is dropped without Unlock, the lock stays held, and the log says so once, and names the line that locked it.
func TestAValueThatIsForgottenIsSaidAndStaysLocked(t *testing.T) {
	for kind, newLock := range map[string]func(p *process) locking{
		"mutex":     func(p *process) locking { return p.mutex("m") },
		"set":       func(p *process) locking { return p.set("m", "n") },
		"semaphore": func(p *process) locking { return &slotLock{Semaphore: p.semaphore("m", 1)} },
	} {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				p := b.process()
				kept := newLock(p)
				require.NoError(t, kept.Lock(b.Context()))
				runtime.GC()
				time.Sleep(20 * time.Second)
				assert.Empty(t, p.log.lines("dropped"), "it is still in use")
				require.NoError(t, kept.Unlock(b.Context()))

				h := p.lockAndForget(b, newLock(p))
				collect(b, h)
				time.Sleep(5 * time.Second) // a heartbeat
				said := p.log.lines("was locked and then dropped")
				require.Len(t, said, 1)
				assert.Regexp(t, `held=\d+(\.\d+)?s locked_at=\S*(forgotten|fair)_test.go:\d+`, said[0])
				time.Sleep(time.Minute)
				assert.Len(t, p.log.lines("was locked and then dropped"), 1)
				assert.NotZero(t, h.token(), "it is not released")
				runtime.KeepAlive(kept)
			})
		})
	}
}

// The error of a goroutine that waits for a lock of its own process says under which token, since when and where the lock
// was acquired.
func TestAWaitForAnotherGoroutineSaysWhereItLocked(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		first := p.mutex("m")
		require.NoError(t, first.Lock(b.Context()))
		time.Sleep(3 * time.Second)
		for _, second := range []*Mutex{first, p.mutex("m")} {
			ctx, cancel := within1s(b.Context())
			err := second.Lock(ctx)
			cancel()
			assert.ErrorContains(t, err, "under token "+first.Token().String())
			assert.Regexp(t, `^lock: mutex "m": .* it was locked [345]s ago, at \S*forgotten_test.go:\d+\)$`, err.Error())
		}

		other, next, locked := b.process().mutex("m"), p.mutex("m"), make(chan error)
		lock := func(m *Mutex) {
			go func() { locked <- m.Lock(b.Context()) }()
			time.Sleep(time.Second)
		}
		lock(other)
		lock(next)
		require.NoError(t, first.Unlock(b.Context()))
		require.NoError(t, <-locked)
		ctx, cancel := within1s(b.Context())
		defer cancel()
		assert.ErrorContains(t, p.mutex("m").Lock(ctx), "another goroutine of this process is ahead", "another process has the lock now")
		require.NoError(t, other.Unlock(b.Context()))
		require.NoError(t, <-locked)
		require.NoError(t, next.Unlock(b.Context()))
	})
}

// Once a value is garbage and its lock was taken away, it is no obstacle to other goroutines of the process, whichever
// of the two comes first. While it is only lost, it is one, because its work may go on.
func TestAForgottenLockThatIsLostIsNoObstacle(t *testing.T) {
	for _, garbageFirst := range []bool{true, false} {
		inVirtualTime(t, func(b *bed) {
			p := b.process()
			h := p.lockAndForget(b, p.mutex("m"))
			lose := func() {
				b.lose("m", spindle.Token(h.term.Token()))
				time.Sleep(5 * time.Second)
				synctest.Wait()
			}
			if garbageFirst {
				collect(b, h)
				ctx, cancel := within1s(b.Context())
				assert.ErrorContains(t, p.mutex("m").Lock(ctx), "was never unlocked and is garbage now; release the lock with spindle release")
				cancel()
				lose()
			} else {
				lose()
				waits := make(chan error, 1)
				go func() { waits <- p.mutex("m").Lock(context.WithoutCancel(b.Context())) }()
				synctest.Wait()
				assert.Empty(t, waits)
				time.Sleep(3 * 10 * time.Second)
				collect(b, h)
				time.Sleep(2 * 10 * time.Second) // it is looked at once in a lease
				synctest.Wait()
				require.Len(t, waits, 1, "a waiter need not be started again")
				require.NoError(t, <-waits)
				return
			}
			next := p.mutex("m")
			time.Sleep(20 * time.Second) // its row is gone, so the lease must pass
			ok, err := next.TryLock(b.Context())
			require.NoError(t, err)
			assert.True(t, ok)
			assert.NoError(t, next.Unlock(b.Context()))
		})
	}
}
