package clientgo

import (
	"context"

	"github.com/spindle-lock/spindle"
)

// Context returns a ctx for an elector's Run, or the Start of a manager of controller-runtime. It ends with its parent,
// when cancel is called, and once a term is lost that client-go leads under. The cause then is spindle.ErrExpired or
// spindle.ErrSuperseded. Otherwise an elector that finds the lock gone goes on for a RenewDeadline: without harm if
// the lease has run out, since that is allowed for, but not if the process was suspended, or if somebody took the lock
// away by hand. Call cancel when Run has returned, and make another for the next Run.
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

// tokenKey is of the token in the ctx of OnStartedLeading.
type tokenKey struct{}

// TokenOf returns the fencing token of the term that ctx, which Config has handed to OnStartedLeading, is of. It is
// zero for any other ctx: no write is fenced by it, all are refused.
func TokenOf(ctx context.Context) spindle.Token {
	token, _ := ctx.Value(tokenKey{}).(spindle.Token)
	return token
}

// guarded is an OnStartedLeading that ends with the spindle lock, and that this waits for.
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

// begin counts a call of OnStartedLeading as work, unless what it is for is over. It does not need mu.
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
