package spindle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// StepDown gives up the lock, and returns once the lock has been released. The leader first announces that it is
// leaving. It then continues to work for up to a third of the lease and one round trip, so that the followers see the
// announcement. Finally, it cancels its work's context, with ErrSteppedDown as the cause, and releases the lock once the
// work has returned.
//
// This Lock then competes again, but not immediately. It does not claim the lock until another candidate has held it,
// or until a third of the lease has passed. If the release may have failed, this Lock waits for a whole lease instead of
// a third.
//
// The error wraps ErrNotLeader if this Lock does not hold the lock, ErrSuperseded or ErrExpired if the lock was lost in
// the meantime, and the cause of ctx if ctx ended. Any other error means that the leader function did not return within
// one lease after its context was canceled, that the release failed, or that an argument of New is invalid. A step-down
// can't be canceled: it continues even if StepDown returns early.
//
// If the leader function itself calls StepDown, it must pass its own ctx. StepDown then returns the cause of ctx as soon
// as the work has to stop, and the function must return as well.
func (l *Lock) StepDown(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	return l.stepDown(ctx, l.view.Load().term)
}

// stepDown gives up the term t, but never a later one.
func (l *Lock) stepDown(ctx context.Context, t *elect.Term) error {
	answer := make(chan error, 1)
	v := l.view.Load()
	if t == nil || v.term != t || !t.Held() || !v.events.Put(event{what: asked, answer: answer}) {
		return l.wrap("step down", ErrNotLeader)
	}
	if err := awaitAnswer(ctx, answer); err != nil {
		return l.wrap("step down", err)
	}
	return nil
}

func awaitAnswer(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-answer: // prefer the answer if both are ready
		return err
	default:
		return fmt.Errorf("%w: the lock is still held, and will be released once the leader function has returned", context.Cause(ctx))
	}
}

// Handover is the outcome of a handover request.
type Handover struct {
	From, To Leader        // the same ID in both means that the old holder was elected again
	Gap      time.Duration // the longest time that the lock can have had no holder, by Spanner's clock
}

// RequestHandover asks the holder to step down if its term has the given token, and returns once another term has
// begun. Only a holder with WithHandover accepts requests. Because such a holder checks for requests once per lease,
// RequestHandover can take about one and a half leases, plus the time until the leader's work returns. It works in any
// process, even if Run was never called.
//
// The error wraps ErrSuperseded if token is not valid, ErrNoLeader if token is valid but its lease has expired, and
// ErrHandoverUnsupported if the holder does not accept requests. If ctx ends, the error wraps the cause of ctx and says
// how far the handover has progressed. Any other error means that an argument of New is invalid, or that further
// attempts are pointless, for example because a permission is missing. A handover request can't be canceled. It never
// affects a later term.
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
		return Handover{}, fmt.Errorf("token %v is still the latest one, but its lease has expired: %w", token, ErrNoLeader)
	case !o.LeaseRecord.AcceptsHandover:
		return Handover{}, ErrHandoverUnsupported
	}
	h := Handover{From: leaderOf(o)}
	if err := l.ask(ctx, h.From); err != nil {
		return h, err
	}
	f := follower{Handover: h, held: o.At, so: "the leader was asked to hand over, but still leads"}
	err = f.follow(ctx, l)
	return f.Handover, err
}

// firstLook reads which process holds the lock, before any request is sent.
func (l *Lock) firstLook(ctx context.Context) (o table.Observation, err error) {
	err = l.insist(ctx, l.config.Lease, "the leader is not known", func(ctx context.Context) (err error) {
		o, err = l.look(ctx)
		return err
	})
	return o, err
}

// ask repeats the request until Spanner has acknowledged it. It also returns nil if the term has just ended.
func (l *Lock) ask(ctx context.Context, from Leader) error {
	return l.insist(ctx, from.Lease, "it is not known whether the request arrived", func(ctx context.Context) error {
		err := l.table.Ask(ctx, table.ByOperator, l.name, table.Token(from.Token))
		if errors.Is(err, ErrSuperseded) {
			return nil
		}
		return err
	})
}

// insist repeats a step until it succeeds, ctx ends, or further attempts are pointless (see elect.Patience). Each
// attempt has a time limit, because a request or its reply may get lost.
func (l *Lock) insist(ctx context.Context, lease time.Duration, unless string, step func(context.Context) error) error {
	patience := elect.Patience{Clock: l.config.Clock, Lease: lease}
	for retry := (elect.Backoff{Max: lease / 10}); ; {
		attempt, cancel := context.WithTimeout(ctx, elect.Attempt(lease))
		err := step(attempt)
		cancel()
		if err == nil || patience.Ends("request", err) {
			return err
		}
		elect.Sleep(ctx, l.config.Clock, retry.Pause(l.config.Clock))
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w: %w", unless, context.Cause(ctx), err)
		}
	}
}

// follower watches a handover until it is complete.
type follower struct {
	Handover
	held time.Time // when the lock was last known to be held
	free bool      // whether held is exact, because the lock was released at that time
	so   string    // how far the handover has progressed
}

func (f *follower) follow(ctx context.Context, l *Lock) error {
	patience := elect.Patience{Clock: l.config.Clock, Lease: f.From.Lease}
	patience.Passed("look") // the first one
	for f.To.Token == 0 {
		elect.Sleep(ctx, l.config.Clock, f.From.Lease/50)
		attempt, cancel := context.WithTimeout(ctx, elect.Attempt(f.From.Lease))
		o, err := l.look(attempt)
		cancel()
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", f.so, context.Cause(ctx))
		}
		switch {
		case err == nil:
			patience.Passed("look")
			f.see(o)
		case patience.Ends("look", err):
			return fmt.Errorf("%s: %w", f.so, err)
		}
	}
	return nil
}

func (f *follower) see(o table.Observation) {
	switch {
	case Token(o.Token) == f.From.Token && leads(o):
		if f.held = o.At; o.Leaving() {
			f.so = "the leader has announced that it is leaving, but has not released the lock yet"
		}
	case Token(o.Token) == f.From.Token && o.Confirmed():
		f.so = "the leader's heartbeats have stopped, but it has not released the lock"
	case leads(o):
		f.To, f.Gap = leaderOf(o), max(o.Heartbeat.Sub(f.held), 0)
	case o.Exists && o.Heartbeat.IsZero() && o.Writer == "" && !f.free: // a withdrawn claim is not a release
		f.held, f.free = o.ReleasedAt(), true
		f.so = "the lock has been released, but no candidate has taken over yet"
	}
}
