package lock

import (
	"context"
	"errors"
	"time"
)

// ErrLost is the cause of the context of a function in Do whose lock was lost.
var ErrLost = errors.New("the lock was lost")

// Do takes the lock, runs fn, and gives the lock back in every case, panics included. The context of fn
// ends the instant the lock is lost, with the cause ErrLost, or when ctx does. Do returns what fn returns,
// joined with ErrNotHeld where the lock was lost before fn had returned, whether or not fn noticed.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error) (err error) {
	if err := l.Lock(ctx); err != nil {
		return err
	}
	work, end := context.WithCancelCause(mark(ctx, l))
	lost, returned := l.Lost(), make(chan struct{})
	go func() {
		select {
		case <-lost:
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
		err = errors.Join(err, l.Unlock(unlock))
	}()
	return fn(work)
}

// inside is the key of what marks the contexts that Do makes.
type inside struct{ m *mutex }

func (m *mutex) self() *mutex { return m }

func mark(ctx context.Context, l Locker) context.Context {
	if own, ok := l.(interface{ self() *mutex }); ok {
		return context.WithValue(ctx, inside{own.self()}, true)
	}
	return ctx
}

func within(ctx context.Context, m *mutex) bool { return ctx.Value(inside{m}) != nil }
