package moments

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spindle-lock/spindle"
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
	atEachMoment(t, machine{
		live: liveMutex,
		events: common(map[string]func(*world){
			"the holder unlocks":      func(w *world) { _ = w.values.(*mutexes).before.Unlock(context.Background()) },
			"an operator releases it": operator("m"),
			"its value is unlocked":   func(w *world) { _ = w.values.(*mutexes).own.Unlock(context.Background()) },
			"another goroutine wants it": func(w *world) {
				s := w.values.(*mutexes).sibling
				if s.Lock(w.ctx) == nil {
					_ = s.Unlock(context.Background())
				}
			},
		}),
		after: func(w *world) {
			m := w.values.(*mutexes)
			ctx, cancel := soon(4 * lease)
			defer cancel()
			if err := m.next.Lock(ctx); err != nil {
				w.errorf("another process: %v", err)
				return
			}
			_ = m.next.Unlock(ctx)
			if err := m.sibling.Lock(ctx); err != nil {
				w.errorf("another value of the process: %v", err)
				return
			}
			_ = m.sibling.Unlock(ctx)
		},
	})
}

func liveMutex(w *world) {
	m := &mutexes{
		own: lock.New(nil, "locktable", "m", w.options()...), sibling: lock.New(nil, "locktable", "m", w.options()...),
		before: lock.New(nil, "locktable", "m", w.beside("before")...), next: lock.New(nil, "locktable", "m", w.beside("next")...),
	}
	w.values = m
	defer w.apart(holds(m.own), holds(m.sibling), holds(m.before), holds(m.next))()
	if err := m.before.Lock(context.Background()); err != nil {
		w.errorf("before: %v", err)
	}
	w.others.Go(func() {
		time.Sleep(lease)
		_ = m.before.Unlock(context.Background())
	})
	w.others.Go(func() {
		time.Sleep(lease + lease/2)
		ctx, cancel := soon(5 * lease)
		defer cancel()
		if m.next.Lock(ctx) == nil {
			_ = m.next.Unlock(ctx)
		}
	})
	limit, cancel := context.WithTimeout(w.ctx, 4*lease)
	defer cancel()
	err := m.own.Lock(limit)
	if over := limit.Err(); err != nil && over == nil && !errors.Is(err, errUnavailable) {
		w.errorf("Lock returned before its ctx ended: %v", err)
	}
	if err != nil {
		return
	}
	time.Sleep(lease)
	ctx, cancel := soon(2 * lease)
	defer cancel()
	_ = m.own.Unlock(ctx)
	if m.own.Token() != 0 {
		w.errorf("it is held after Unlock")
	}
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
	atEachMoment(t, machine{
		live: liveSemaphore,
		events: common(map[string]func(*world){
			"a permit is released": func(w *world) { _ = w.values.(*semaphores).taken[0].Release(context.Background()) },
			"another goroutine wants one": func(w *world) {
				if p, err := w.values.(*semaphores).own.Acquire(w.ctx); err == nil {
					_ = p.Release(context.Background())
				}
			},
		}),
		after: func(w *world) {
			s := w.values.(*semaphores)
			for name, sem := range map[string]*lock.Semaphore{"another process": s.other, "the process itself": s.own} {
				ctx, cancel := soon(4 * lease)
				var all []*lock.Permit
				for i := range permits {
					p, err := sem.Acquire(ctx)
					if err != nil {
						w.errorf("%s, permit %d: %v", name, i, err)
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

func liveSemaphore(w *world) {
	s := &semaphores{own: lock.NewSemaphore(nil, "locktable", "s", permits, w.options()...),
		other: lock.NewSemaphore(nil, "locktable", "s", permits, w.beside("other")...)}
	w.values = s
	for range permits {
		p, err := s.other.Acquire(context.Background())
		if err != nil {
			w.errorf("other: %v", err)
			return
		}
		s.taken = append(s.taken, p)
	}
	for i, p := range s.taken {
		w.others.Go(func() {
			time.Sleep(time.Duration(i+1) * lease)
			_ = p.Release(context.Background())
		})
	}
	limit, cancel := context.WithTimeout(w.ctx, 4*lease)
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
		w.errorf("%d permits", n)
	}
	time.Sleep(lease / 2)
	ctx, cancel := soon(2 * lease)
	defer cancel()
	_ = p.Release(ctx)
}

// onces are the machine's Once and others'.
type onces struct {
	own, other *lock.Once
	done       int
}

// Work that is done once. Whatever happens at whatever moment: it never runs twice at the same time, it does not run again
// once a run is known to have succeeded, and the key ends up done.
func TestOnceAtEachMoment(t *testing.T) {
	atEachMoment(t, machine{
		live: liveOnce,
		events: common(map[string]func(*world){
			"another process wants it": func(w *world) {
				o := w.values.(*onces)
				ctx, cancel := soon(5 * lease)
				defer cancel()
				o.do(w, ctx, o.other)
			},
			"another goroutine wants it": func(w *world) { o := w.values.(*onces); o.do(w, w.ctx, o.own) },
		}),
		after: func(w *world) {
			o := w.values.(*onces)
			ctx, cancel := soon(4 * lease)
			defer cancel()
			o.do(w, ctx, o.other)
			if ran, err := o.other.Do(ctx, lock.KeyOf("k"), func(context.Context, lock.Run) error { return nil }); ran || err != nil {
				w.errorf("in the end the key is not done: ran %v, %v", ran, err)
			}
		},
	})
}

func (o *onces) do(w *world, ctx context.Context, once *lock.Once) {
	known := false
	_, err := once.Do(ctx, lock.KeyOf("k"), func(ctx context.Context, run lock.Run) error {
		w.mu.Lock()
		known = o.done > 0
		w.mu.Unlock()
		for start := time.Now(); time.Since(start) < lease/2; time.Sleep(lease / 100) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		o.done++
	}
	if known {
		w.errorf("it ran although it was known to be done")
	}
}

func liveOnce(w *world) {
	o := &onces{own: lock.NewOnce(nil, "locktable", "o", w.options()...), other: lock.NewOnce(nil, "locktable", "o", w.beside("other")...)}
	w.values = o
	w.others.Go(func() {
		ctx, cancel := soon(lease / 3)
		defer cancel()
		_, _ = o.other.Do(ctx, lock.KeyOf("before"), func(context.Context, lock.Run) error { time.Sleep(lease / 4); return nil })
	})
	time.Sleep(lease / 100)
	limit, cancel := context.WithTimeout(w.ctx, 4*lease)
	defer cancel()
	o.do(w, limit, o.own)
}
