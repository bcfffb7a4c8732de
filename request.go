package spindle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Handover is the outcome of a handover request.
type Handover struct {
	From, To Leader        // if their ID is the same, the old holder was elected again
	Gap      time.Duration // for at most this long nobody held the lock, by Spanner's clock
}

// RequestHandover asks the holder of token to step down, and returns once another term has begun. The holder accepts if
// it runs with WithHandover. It looks for requests once a lease, so this takes up to a lease and a half, plus the time
// that the leader's work takes to return. RequestHandover does not need Run, and may be called from any process.
//
// The error is ErrSuperseded if the token is not valid; ErrNoLeader if it is valid and its lease is over;
// ErrHandoverUnsupported if its holder does not look for requests. Otherwise it wraps ctx's error and says how far the
// handover came. A request can't be taken back. It is for the term of token only, never for a later one.
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
	o, err := l.firstLook(ctx)
	switch {
	case err != nil:
		return Handover{}, err
	case Token(o.Token) != token:
		return Handover{}, fmt.Errorf("token %v: %w", token, ErrSuperseded)
	case !leads(o):
		return Handover{}, fmt.Errorf("token %v was not superseded, but its lease is over: %w", token, ErrNoLeader)
	case !o.LeaseRecord.AcceptsHandover:
		return Handover{}, ErrHandoverUnsupported
	}
	h := Handover{From: leaderOf(o)}
	if err := l.ask(ctx, h.From); err != nil {
		return h, err
	}
	f := follower{Handover: h, held: o.At, so: "it was asked, and leads still"}
	err = f.follow(ctx, l)
	return f.Handover, err
}

// firstLook reads who holds the lock. Nobody has been asked yet.
func (l *Lock) firstLook(ctx context.Context) (o table.Observation, err error) {
	err = l.insist(ctx, l.config.Lease, "who leads is not known", func(ctx context.Context) (err error) {
		o, err = l.look(ctx)
		return err
	})
	return o, err
}

// ask repeats the request until it is known to have arrived. A term that has just ended is no error.
func (l *Lock) ask(ctx context.Context, from Leader) error {
	return l.insist(ctx, from.Lease, "whether it was asked is not known", func(ctx context.Context) error {
		err := l.table.Ask(ctx, table.ByOperator, l.name, table.Token(from.Token))
		if errors.Is(err, ErrSuperseded) {
			return nil
		}
		return err
	})
}

// insist repeats a step until it succeeds, ctx ends, or waiting can't mend what is wrong. Each attempt is limited,
// because one may get lost.
func (l *Lock) insist(ctx context.Context, lease time.Duration, unless string, step func(context.Context) error) error {
	for retry := (elect.Backoff{Max: lease / 10}); ; {
		attempt, cancel := context.WithTimeout(ctx, elect.Attempt(lease))
		err := step(attempt)
		cancel()
		if err == nil || elect.Lasting(err) {
			return err
		}
		elect.Sleep(ctx, l.config.Clock, retry.Pause(l.config.Clock))
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w: %w", unless, context.Cause(ctx), err)
		}
	}
}

// follower follows a handover to its end.
type follower struct {
	Handover
	held time.Time // when the lock was last known to be held
	free bool      // held is exact: the lock was released then
	so   string    // how far the handover came
}

func (f *follower) follow(ctx context.Context, l *Lock) error {
	for f.To.Token == 0 {
		elect.Sleep(ctx, l.config.Clock, f.From.Lease/50)
		attempt, cancel := context.WithTimeout(ctx, elect.Attempt(f.From.Lease))
		o, err := l.look(attempt)
		cancel()
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
	case o.Exists && o.Heartbeat.IsZero() && o.Writer == "" && !f.free: // a claim that was withdrawn is no release
		f.held, f.free = o.ReleasedAt(), true
		f.so = "it has released the lock, and nobody has taken it over"
	}
}
