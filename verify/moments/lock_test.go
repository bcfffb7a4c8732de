package moments

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/moments"
	"github.com/spindle-lock/spindle/lock"
)

// held is a lock of package lock that a value may hold.
type held interface {
	Token() spindle.Token
	Left() time.Duration
}

func holds(l held) func() bool {
	return func() bool { return l.Token() != 0 && l.Left() > 0 }
}

// soon returns a context for a call that has to succeed within d.
func soon(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// mutexes are the machine's values, and those of the processes beside it.
type mutexes struct {
	own, sibling, before, next *lock.Mutex
}

// A waiter waits for a lock, holds it and unlocks it, beside another goroutine of its process. Whatever happens at whatever
// moment: two never hold the lock, Lock returns soon after its ctx, and the processes behind it get the lock.
func TestMutexAtEachMoment(t *testing.T) {
	moments.AtEachMoment(t, moments.Machine{
		Live: liveMutex,
		Events: moments.Common(map[string]func(*moments.World){
			"the holder unlocks":      func(w *moments.World) { _ = w.Values.(*mutexes).before.Unlock(context.Background()) },
			"an operator releases it": moments.Operator("m"),
			"its value is unlocked":   func(w *moments.World) { _ = w.Values.(*mutexes).own.Unlock(context.Background()) },
			"another goroutine wants it": func(w *moments.World) {
				s := w.Values.(*mutexes).sibling
				if s.Lock(w.Ctx) == nil {
					_ = s.Unlock(context.Background())
				}
			},
			"another goroutine tries it": func(w *moments.World) {
				s := w.Values.(*mutexes).sibling
				if had, _ := s.TryLock(w.Ctx); had {
					time.Sleep(moments.Lease / 10)
					_ = s.Unlock(context.Background())
				}
			},
		}),
		After: func(w *moments.World) {
			m := w.Values.(*mutexes)
			ctx, cancel := soon(4 * moments.Lease)
			defer cancel()
			if err := m.next.Lock(ctx); err != nil {
				w.Errorf("another process: %v", err)
				return
			}
			_ = m.next.Unlock(ctx)
			if err := m.sibling.Lock(ctx); err != nil {
				w.Errorf("another value of the process: %v", err)
				return
			}
			_ = m.sibling.Unlock(ctx)
		},
	})
}

func liveMutex(w *moments.World) {
	m := &mutexes{
		own: lock.New(nil, "locktable", "m", w.Options()), sibling: lock.New(nil, "locktable", "m", w.Options()),
		before: lock.New(nil, "locktable", "m", w.Beside("before")), next: lock.New(nil, "locktable", "m", w.Beside("next")),
	}
	w.Values = m
	defer w.Apart(holds(m.own), holds(m.sibling), holds(m.before), holds(m.next))()
	defer w.Renewed(func() bool { return holds(m.own)() || holds(m.sibling)() }, []string{"claim", "outcome", "confirm", "heartbeat"})()
	if err := m.before.Lock(context.Background()); err != nil {
		w.Errorf("before: %v", err)
	}
	w.Others.Go(func() {
		time.Sleep(moments.Lease)
		_ = m.before.Unlock(context.Background())
	})
	w.Others.Go(func() {
		time.Sleep(moments.Lease + moments.Lease/2)
		ctx, cancel := soon(5 * moments.Lease)
		defer cancel()
		if m.next.Lock(ctx) == nil {
			time.Sleep(moments.Lease / 4)
			_ = m.next.Unlock(context.Background())
		}
	})
	limit, cancel := context.WithTimeout(w.Ctx, 4*moments.Lease)
	defer cancel()
	err := locks(w, limit, m.own)
	if over := limit.Err(); err != nil && over == nil && !errors.Is(err, moments.ErrUnavailable) {
		w.Errorf("Lock returned before its ctx ended: %v", err)
	}
	if err != nil {
		return
	}
	time.Sleep(moments.Lease)
	ctx, cancel := soon(2 * moments.Lease)
	defer cancel()
	_ = m.own.Unlock(ctx)
	if m.own.Token() != 0 {
		w.Errorf("it is held after Unlock")
	}
}

// locks calls Lock, which must return soon after its ctx has ended.
func locks(w *moments.World, ctx context.Context, m *lock.Mutex) error {
	var ended atomic.Pointer[time.Time]
	stop := context.AfterFunc(ctx, func() { now := time.Now(); ended.Store(&now) })
	defer stop()
	err := m.Lock(ctx)
	if at := ended.Load(); at != nil && time.Since(*at) > moments.Lease/10 {
		w.Errorf("Lock returned %v after its ctx had ended", time.Since(*at))
	}
	return err
}

// crowd are the goroutines of one process that want one lock, and the processes beside it.
type crowd struct {
	own, beside []*lock.Mutex
	ends        []context.CancelFunc
}

// The goroutines of a process share its place in the queue. Whatever happens to one of them at whatever moment: two never hold
// the lock, the others get their turns, and so does the process behind them.
func TestQueueOfAProcessAtEachMoment(t *testing.T) {
	ends := func(i int) func(*moments.World) {
		return func(w *moments.World) { w.Values.(*crowd).ends[i]() }
	}
	moments.AtEachMoment(t, moments.Machine{
		Live: liveQueue,
		Events: moments.Common(map[string]func(*moments.World){
			"the first gives up": ends(0), "the second gives up": ends(1), "the third gives up": ends(2),
			"two give up":             func(w *moments.World) { ends(0)(w); ends(1)(w) },
			"the holder unlocks":      func(w *moments.World) { _ = w.Values.(*crowd).beside[0].Unlock(context.Background()) },
			"an operator releases it": moments.Operator("m"),
			"a fourth tries it": func(w *moments.World) {
				m := lock.New(nil, "locktable", "m", w.Options())
				if had, _ := m.TryLock(w.Ctx); had {
					_ = m.Unlock(context.Background())
				}
			},
		}),
		After: func(w *moments.World) {
			c := w.Values.(*crowd)
			for _, m := range append(c.own, c.beside[1]) {
				ctx, cancel := soon(4 * moments.Lease)
				if err := m.Lock(ctx); err != nil {
					w.Errorf("afterwards: %v", err)
				}
				_ = m.Unlock(ctx)
				cancel()
			}
		},
	})
}

func liveQueue(w *moments.World) {
	c := &crowd{}
	w.Values = c
	var ctxs []context.Context
	for range 3 {
		ctx, cancel := context.WithTimeout(w.Ctx, 6*moments.Lease)
		defer cancel()
		ctxs, c.ends = append(ctxs, ctx), append(c.ends, cancel)
		c.own = append(c.own, lock.New(nil, "locktable", "m", w.Options()))
	}
	for _, id := range []string{"before", "next"} {
		c.beside = append(c.beside, lock.New(nil, "locktable", "m", w.Beside(id)))
	}
	var all []func() bool
	for _, m := range append(c.own, c.beside...) {
		all = append(all, holds(m))
	}
	defer w.Apart(all...)()
	_ = c.beside[0].Lock(context.Background())
	w.Others.Go(func() {
		time.Sleep(moments.Lease / 2)
		_ = c.beside[0].Unlock(context.Background())
	})
	w.Others.Go(func() {
		time.Sleep(moments.Lease)
		ctx, cancel := soon(7 * moments.Lease)
		defer cancel()
		if err := c.beside[1].Lock(ctx); err != nil {
			w.Errorf("the process behind them: %v", err)
			return
		}
		time.Sleep(moments.Lease / 4)
		_ = c.beside[1].Unlock(context.Background())
	})
	var goroutines sync.WaitGroup
	for i, m := range c.own {
		goroutines.Go(func() {
			time.Sleep(time.Duration(i+1) * moments.Lease / 20)
			if locks(w, ctxs[i], m) != nil {
				if ctxs[i].Err() == nil {
					w.Errorf("a goroutine got no turn")
				}
				return
			}
			time.Sleep(moments.Lease / 4)
			_ = m.Unlock(context.Background())
		})
	}
	goroutines.Wait()
}

// semaphores are the machine's semaphore and others'.
type semaphores struct {
	own, other *lock.Semaphore
	taken      []*lock.Permit
}

const permits = 2

// A semaphore's search for a free slot. Whatever happens at whatever moment: there are never more permits than slots, and
// afterwards both the process itself and another one can have all of them.
func TestSemaphoreAtEachMoment(t *testing.T) {
	moments.AtEachMoment(t, moments.Machine{
		Live: liveSemaphore,
		Events: moments.Common(map[string]func(*moments.World){
			"a permit is released": func(w *moments.World) { _ = w.Values.(*semaphores).taken[0].Release(context.Background()) },
			"another goroutine wants one": func(w *moments.World) {
				if p, err := w.Values.(*semaphores).own.Acquire(w.Ctx); err == nil {
					_ = p.Release(context.Background())
				}
			},
			"another goroutine tries it": func(w *moments.World) {
				if p, _, _ := w.Values.(*semaphores).own.TryAcquire(w.Ctx); p != nil {
					time.Sleep(moments.Lease / 10)
					_ = p.Release(context.Background())
				}
			},
		}),
		After: func(w *moments.World) {
			s := w.Values.(*semaphores)
			for name, sem := range map[string]*lock.Semaphore{"another process": s.other, "the process itself": s.own} {
				ctx, cancel := soon(4 * moments.Lease)
				var all []*lock.Permit
				for i := range permits {
					p, err := sem.Acquire(ctx)
					if err != nil {
						w.Errorf("%s, permit %d: %v", name, i, err)
						break
					}
					all = append(all, p)
				}
				for _, p := range all {
					_ = p.Release(ctx)
				}
				cancel()
			}
		},
	})
}

func liveSemaphore(w *moments.World) {
	s := &semaphores{own: lock.NewSemaphore(nil, "locktable", "s", permits, w.Options()),
		other: lock.NewSemaphore(nil, "locktable", "s", permits, w.Beside("other"))}
	w.Values = s
	for range permits {
		p, err := s.other.Acquire(context.Background())
		if err != nil {
			w.Errorf("other: %v", err)
			return
		}
		s.taken = append(s.taken, p)
	}
	for i, p := range s.taken {
		w.Others.Go(func() {
			time.Sleep(time.Duration(i+1) * moments.Lease)
			_ = p.Release(context.Background())
		})
	}
	limit, cancel := context.WithTimeout(w.Ctx, 4*moments.Lease)
	defer cancel()
	p, err := s.own.Acquire(limit)
	if err != nil {
		return
	}
	n := 0
	for _, other := range append(s.taken, p) {
		if holds(other)() {
			n++
		}
	}
	if n > permits {
		w.Errorf("%d permits", n)
	}
	time.Sleep(moments.Lease / 2)
	ctx, cancel := soon(2 * moments.Lease)
	defer cancel()
	_ = p.Release(ctx)
}

// onces are the machine's Once and others'.
type onces struct {
	own, other *lock.Once

	mu   sync.Mutex
	done int
}

// Work that is done once. Whatever happens at whatever moment: it never runs twice at the same time, it does not run again
// once a run is known to have succeeded, and the key ends up done.
func TestOnceAtEachMoment(t *testing.T) {
	moments.AtEachMoment(t, moments.Machine{
		Live: liveOnce,
		Events: moments.Common(map[string]func(*moments.World){
			"another process wants it": func(w *moments.World) {
				o := w.Values.(*onces)
				ctx, cancel := soon(5 * moments.Lease)
				defer cancel()
				o.do(w, ctx, o.other)
			},
			"another goroutine wants it": func(w *moments.World) { o := w.Values.(*onces); o.do(w, w.Ctx, o.own) },
		}),
		After: func(w *moments.World) {
			o := w.Values.(*onces)
			ctx, cancel := soon(4 * moments.Lease)
			defer cancel()
			o.do(w, ctx, o.other)
			if ran, err := o.other.Do(ctx, lock.KeyOf("k"), func(context.Context, lock.Run) error { return nil }); ran || err != nil {
				w.Errorf("in the end the key is not done: ran %v, %v", ran, err)
			}
		},
	})
}

func (o *onces) do(w *moments.World, ctx context.Context, once *lock.Once) {
	known := false
	_, err := once.Do(ctx, lock.KeyOf("k"), func(ctx context.Context, run lock.Run) error {
		o.mu.Lock()
		known = o.done > 0
		o.mu.Unlock()
		for start := time.Now(); time.Since(start) < moments.Lease/2; time.Sleep(moments.Lease / 100) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.done++
	}
	if known {
		w.Errorf("it ran although it was known to be done")
	}
}

func liveOnce(w *moments.World) {
	o := &onces{own: lock.NewOnce(nil, "locktable", "o", w.Options()), other: lock.NewOnce(nil, "locktable", "o", w.Beside("other"))}
	w.Values = o
	w.Others.Go(func() {
		ctx, cancel := soon(moments.Lease / 3)
		defer cancel()
		_, _ = o.other.Do(ctx, lock.KeyOf("before"), func(context.Context, lock.Run) error { time.Sleep(moments.Lease / 4); return nil })
	})
	time.Sleep(moments.Lease / 100)
	limit, cancel := context.WithTimeout(w.Ctx, 4*moments.Lease)
	defer cancel()
	o.do(w, limit, o.own)
}
