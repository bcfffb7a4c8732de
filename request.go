package spindle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Handover is the outcome of a request.
type Handover struct {
	From, To Leader        // if their ID is the same, the holder that was asked was elected again
	Gap      time.Duration // nobody held the lock for at most so long, by Spanner's clock
}

// RequestHandover asks the holder of token to step down, and returns once another term has begun. The holder
// obeys if it runs with WithHandover. It looks for requests once a lease, so this takes up to a lease and a half,
// and what the leader's work takes to stop. It does not need Run, and may be called from any process.
//
// The error is ErrSuperseded if the token is not good, ErrNotObeyed if its holder does not look for requests, or
// wraps that of ctx and says how far it came. A request can't be taken back. Only the term of token is asked,
// never a later one.
func (l *Lock) RequestHandover(ctx context.Context, token Token) (Handover, error) {
	if l.err != nil {
		return Handover{}, l.err
	}
	h, err := l.requestHandover(ctx, token)
	if err != nil {
		return h, l.wrap("request handover", err)
	}
	return h, nil
}

func (l *Lock) requestHandover(ctx context.Context, token Token) (Handover, error) {
	o, err := l.look(ctx)
	switch {
	case err != nil:
		return Handover{}, err
	case !leads(o) || Token(o.Token) != token:
		return Handover{}, fmt.Errorf("token %v: %w", token, ErrSuperseded)
	case !o.Promise.Obeys:
		return Handover{}, ErrNotObeyed
	}
	h := Handover{From: leaderOf(o)}
	if err := l.ask(ctx, h.From); err != nil {
		return h, err
	}
	f := follower{Handover: h, held: o.At, so: "it was asked, and leads still"}
	err = f.follow(ctx, l)
	return f.Handover, err
}

// ask repeats the request until it is known to have arrived. It has no answer if the term has just ended.
func (l *Lock) ask(ctx context.Context, from Leader) error {
	for retry := (elect.Backoff{Max: from.Lease / 10}); ; {
		err := l.table.Ask(ctx, table.ByOperator, l.name, table.Token(from.Token))
		if err == nil || errors.Is(err, ErrSuperseded) {
			return nil
		}
		if elect.Lasting(err) {
			return fmt.Errorf("ask: %w", err)
		}
		elect.Sleep(ctx, l.config.Clock, retry.Pause(l.config.Clock))
		if ctx.Err() != nil {
			return fmt.Errorf("whether it was asked is not known: %w: %w", context.Cause(ctx), err)
		}
	}
}

// follower sees a handover through.
type follower struct {
	Handover
	held time.Time // when the lock was last known to be held
	free bool      // held is exact: the lock was released then
	so   string    // how far the handover came
}

func (f *follower) follow(ctx context.Context, l *Lock) error {
	for f.To.Token == 0 {
		elect.Sleep(ctx, l.config.Clock, f.From.Lease/50)
		o, err := l.look(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", f.so, context.Cause(ctx))
		}
		if err == nil {
			f.see(o)
		}
	}
	return nil
}

func (f *follower) see(o table.Observation) {
	switch {
	case Token(o.Token) == f.From.Token && leads(o):
		if f.held = o.At; o.Leaving() {
			f.so = "it is leaving, and has not released the lock"
		}
	case Token(o.Token) == f.From.Token && o.Confirmed():
		f.so = "it has not released the lock, and is not heard from any more"
	case leads(o):
		f.To, f.Gap = leaderOf(o), max(o.Heartbeat.Sub(f.held), 0)
	case o.Exists && o.Heartbeat.IsZero() && !f.free:
		f.held, f.free = o.Token.Time(), true
		f.so = "it has released the lock, and nobody has taken it over"
	}
}
