package lock

import (
	"context"
	"runtime"
	"strings"
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
		p, before := b.process(), b.process().mutex("m")
		first := p.mutex("m")
		require.NoError(t, before.Lock(b.Context()))
		time.AfterFunc(time.Minute, func() { assert.NoError(t, before.Unlock(b.Context())) })
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

// Whatever call locks, and whatever it locks, messages name the line of the program that made the call, and not a line of this package.
func TestTheLineThatLockedIsTheCallers(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, ctx := b.process(), b.Context()
		m, permits := p.mutex("m"), p.semaphore("s", 2)
		var h *held
		work := func(ctx context.Context) error { h = working(ctx).held; return nil }
		run := func(ctx context.Context, _ Run) error { return work(ctx) }
		for name, call := range map[string]func() error{
			"Lock":             func() error { err := m.Lock(ctx); h = m.now.Load(); return err },
			"Do":               func() error { return Do(ctx, p.set("a", "b"), work) },
			"TryDo":            func() error { return second(TryDo(ctx, p.mutex("n"), work)) },
			"Acquire":          func() error { permit, err := permits.Acquire(ctx); h = permit.now.Load(); return err },
			"Do with a permit": func() error { return Do(ctx, permits, work) },
			"TryDo, a permit":  func() error { return second(TryDo(ctx, permits, work)) },
			"Once.Do":          func() error { return second(p.once("o").Do(ctx, KeyOf("1"), run)) },
			"Once.TryDo":       func() error { return second(p.once("another").TryDo(ctx, KeyOf("1"), run)) },
		} {
			require.NoError(t, call(), name)
			assert.Contains(t, h.by.caller(), "/forgotten_test.go:", name)
		}
	})
}

// Once a value is garbage and its lock was taken away, it is no obstacle to other goroutines of the process, whatever comes first: the loss,
// the end of the value, or a goroutine that wants the lock. While the lock is only lost, the value is an obstacle, because its work may go on.
func TestAForgottenLockThatIsLostIsNoObstacle(t *testing.T) {
	for _, order := range []string{"lost, garbage, wanted", "lost, wanted, garbage", "garbage, lost, wanted", "garbage, wanted, lost", "wanted, lost, garbage", "wanted, garbage, lost"} {
		inVirtualTime(t, func(b *bed) {
			p, kept := b.process(), make(chan *Mutex, 1)
			h := p.lockAndForget(b, func() locking { m := p.mutex("m"); kept <- m; return m }())
			got, next := make(chan error, 1), p.mutex("m")
			for i, event := range strings.Split(order, ", ") {
				switch event {
				case "lost":
					b.lose("m", spindle.Token(h.term.Token()))
				case "garbage":
					<-kept
					collect(b, h)
				case "wanted":
					if i == 2 {
						ok, err := next.TryLock(b.Context())
						require.True(t, ok, order)
						got <- err
						break
					}
					go func() { got <- next.Lock(context.WithoutCancel(b.Context())) }()
				}
				time.Sleep(45 * time.Second) // others wait a lease once the rows are gone, and the holder looks at the value once in a lease
				synctest.Wait()
				require.Equal(t, i == 2, len(got) == 1, "%s: %s", order, event)
				if garbage := h.by.garbage.Load(); i < 2 && garbage && h.term.Held() {
					ctx, cancel := within1s(b.Context())
					assert.ErrorContains(t, p.mutex("m").Lock(ctx), "was never unlocked and is garbage now; release the lock with spindle release")
					cancel()
				}
			}
			require.NoError(t, <-got, order)
			require.NoError(t, next.Unlock(b.Context()))
		})
	}
}
