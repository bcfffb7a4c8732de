package clientgo

import (
	"context"

	"github.com/spindle-lock/spindle"
)

// Context returns a ctx to pass to an elector's Run method, or to the Start method of a controller-runtime manager. The
// ctx ends when parent ends, when cancel is called, or when the spindle lock is lost while client-go leads. If the lock
// was lost, the cause of ctx is spindle.ErrExpired or spindle.ErrSuperseded.
//
// Without such a ctx, an elector continues to lead for one RenewDeadline after its renewals begin to fail. This is
// harmless if heartbeats fail, because client-go then stops before the lease expires. It is harmful if the process was
// suspended, or if an operator took the lock away. Call cancel when Run has returned, and create a new ctx for the next
// Run.
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

// TokenOf returns the fencing token that is stored in the ctx of OnStartedLeading (see Config). For any other ctx it
// returns the zero Token, and every write with the zero Token is rejected.
func TokenOf(ctx context.Context) spindle.Token {
	token, _ := ctx.Value(tokenKey{}).(spindle.Token)
	return token
}

// guarded returns an OnStartedLeading function that calls started with a ctx of its own. This ctx ends when the spindle
// lock is lost. The spindle lock is not released until started has returned.
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
