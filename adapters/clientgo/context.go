package clientgo

import (
	"context"

	"github.com/spindle-lock/spindle"
)

// Context returns a ctx for an elector's Run, or for the Start of a controller-runtime manager. It ends when its parent
// ends, when cancel is called, or when client-go's term is lost; in the last case, its cause is spindle.ErrExpired or
// spindle.ErrSuperseded. Without such a ctx, an elector that notices the loss of its lock still leads for a
// RenewDeadline. This is harmless if the lease has expired, because the settings allow for it. It is harmful if the
// process was suspended, or if an operator took the lock away. Call cancel when Run has returned, and create a new ctx
// for the next Run.
func (l *Lock) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	key := &end
	l.mu.Lock()
	l.watching[key] = struct{}{}
	l.mu.Unlock()
	return ctx, func() {
		end(context.Canceled)
		l.mu.Lock()
		delete(l.watching, key)
		l.mu.Unlock()
	}
}

// tokenKey is the key for the token in the ctx of OnStartedLeading.
type tokenKey struct{}

// TokenOf returns the fencing token from the ctx that Config passes to OnStartedLeading. For any other ctx it returns
// zero, and every write under the zero token is rejected.
func TokenOf(ctx context.Context) spindle.Token {
	token, _ := ctx.Value(tokenKey{}).(spindle.Token)
	return token
}

// guarded returns an OnStartedLeading function whose ctx ends with the spindle lock. The lock in turn waits for that
// function.
func (l *Lock) guarded(started func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		ctx, cancel := l.Context(ctx)
		defer cancel()
		t := l.begin(ctx)
		if t == nil {
			return
		}
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.work--
			l.notify()
		}()
		started(context.WithValue(ctx, tokenKey{}, t.token))
	}
}

// begin counts a call to OnStartedLeading as work, unless its term has ended. It locks mu itself.
func (l *Lock) begin(ctx context.Context) *term {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenure
	if t == nil || ctx.Err() != nil || !l.held(t) {
		return nil
	}
	t.work++
	return t
}
