package lock

import (
	"context"
	"errors"
	"time"
)

// ErrLost is the cause of the context of a function in Do whose lock was lost.
var ErrLost = errors.New("the lock was lost")

// Do takes the lock, runs fn, and gives the lock back in every case, panics included. The context of fn ends
// when ctx does, or, with the cause ErrLost, the instant the lock is lost or somebody else unlocks it. Do
// returns what fn returns, joined with ErrNotHeld if the lock was gone before fn returned, whether or not fn
// noticed.
//
// It gives back only what it has taken itself, never what another goroutine has taken since.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error) (err error) {
	own, err := take(ctx, l)
	if err != nil {
		return err
	}
	work, end := context.WithCancelCause(own.mark(ctx))
	returned := make(chan struct{})
	go func() {
		select {
		case <-own.over:
			end(ErrLost)
		case <-returned:
		}
	}()
	defer func() {
		close(returned)
		end(nil)
		// Not for ever: what can't be given back expires.
		unlock, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, own.unlock(unlock))
	}()
	return fn(work)
}

// taken is what Do has taken.
type taken struct {
	over   <-chan struct{} // closed once it is lost or given back
	unlock func(context.Context) error
	m      *mutex // nil if it is not one of this package's
	turn   *turn
}

func take(ctx context.Context, l Locker) (taken, error) {
	switch l := l.(type) {
	case *Mutex:
		return l.take(ctx)
	case *Set:
		return l.take(ctx)
	}
	if err := l.Lock(ctx); err != nil {
		return taken{}, err
	}
	t := taken{over: l.Lost(), unlock: l.Unlock}
	if within, ok := l.(interface{ self() *mutex }); ok {
		t.m = within.self()
		t.turn = t.m.now.Load()
	}
	return t, nil
}

func (m *mutex) self() *mutex { return m }

func (m *mutex) take(ctx context.Context) (taken, error) {
	t, err := m.lock(ctx)
	if err != nil {
		return taken{}, err
	}
	return taken{t.over.Done(), func(ctx context.Context) error { return m.unlock(ctx, t) }, m, t}, nil
}

// inside is the key of what marks the contexts that Do makes.
type inside struct{ m *mutex }

func (t taken) mark(ctx context.Context) context.Context {
	if t.m == nil {
		return ctx
	}
	return context.WithValue(ctx, inside{t.m}, t.turn)
}

// within reports whether ctx is of work in Do that has the turn.
func within(ctx context.Context, m *mutex) bool {
	t, _ := ctx.Value(inside{m}).(*turn)
	return t != nil && m.now.Load() == t
}
