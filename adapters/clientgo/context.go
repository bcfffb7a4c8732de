package clientgo

import (
	"context"

	"github.com/spindle-lock/spindle"
)

// Context returns a ctx for an elector's Run, or the Start of a manager of controller-runtime. It ends with its parent,
// when cancel is called, and once client-go's term is lost: its cause then is spindle.ErrExpired or spindle.ErrSuperseded.
// Without such a ctx, an elector that finds the lock gone leads on for a RenewDeadline. That does no harm if the lease has
// run out, which is allowed for, but does if the process was suspended, or if somebody took the lock away by hand. Call
// cancel when Run has returned, and make another ctx for the next Run.
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

// tokenKey is the key of the token in the ctx of OnStartedLeading.
type tokenKey struct{}

// TokenOf returns the fencing token of ctx's term, if Config handed ctx to OnStartedLeading. It returns zero for any other
// ctx: every write under zero is refused.
func TokenOf(ctx context.Context) spindle.Token {
	token, _ := ctx.Value(tokenKey{}).(spindle.Token)
	return token
}

// guarded returns an OnStartedLeading whose ctx ends with the spindle lock, which waits for it.
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

// begin counts a call of OnStartedLeading as work, unless its term is over. It does not need mu.
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
