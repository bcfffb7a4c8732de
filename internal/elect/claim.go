package elect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Claim claims and confirms all that was seen, or nothing, and returns the term that begins with it. The end of ctx
// does not interrupt an attempt, because a half-done election costs the other candidates a lease; but no further
// attempt is made then. It does not end the term.
//
// If First is true for an error, another was first. After any other error of a confirmation the candidate frees its
// claim and leaves the locks to others for a lease at most: it may be the only one that can't confirm.
func (c *Candidate) Claim(ctx context.Context, seen ...LockView) (*Term, error) {
	observed := make([]table.Observation, len(seen))
	names := make([]string, len(seen))
	for i, s := range seen {
		observed[i], names[i] = s.Observation, s.Name
	}
	running := context.WithoutCancel(ctx)
	if claim, ok := c.freeClaim(observed); ok {
		sent, err := c.claimFree(ctx, claim)
		switch {
		case err == nil:
			c.supersede(names)
			return c.begin(running, claim.Token, sent, names), nil
		case !refusedTime(err):
			return nil, err
		}
	}
	var token table.Token
	err := c.try(running, func(ctx context.Context) (err error) {
		token, err = c.Table.Claim(ctx, c.ID, observed...)
		return err
	})
	c.unsure = err != nil && !First(err)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	c.supersede(names)
	sent, err := c.confirm(ctx, token, names)
	if err != nil {
		if !First(err) {
			c.withdraw(running, token, names, err)
		}
		return nil, fmt.Errorf("confirm: %w", err)
	}
	return c.begin(running, token, sent, names), nil
}

// supersede forgets the former holder of a claimed lock.
func (c *Candidate) supersede(names []string) {
	c.preference.well = Instant{} // its looks succeed, which says nothing of a term of its own
	for _, name := range names {
		c.observer.forgetHolder(name, c.LeaseRecord.Lease)
	}
}

// begin returns the term of a confirmed claim, by what was sent at that instant.
func (c *Candidate) begin(ctx context.Context, token table.Token, sent Instant, names []string) *Term {
	t := newTerm(ctx, c, token, sent, names, c.preference.ignoreFor(c.LeaseRecord.Lease))
	c.coolDown.yielded = false
	c.past.began(t)
	return t
}

// First reports whether err says that another candidate was first.
func First(err error) bool {
	return errors.Is(err, table.ErrChanged) || errors.Is(err, table.ErrSuperseded)
}

// confirm returns the instant before the request that confirmed the claim was sent. If the outcome of the confirmation
// is not known, a heartbeat tells, because it needs the lease rows that the confirmation inserts. That is also so after
// a refusal: it may come from a second attempt, below this one, after a first that was applied. Nobody else can claim
// before the lease of the bare claim is over.
func (c *Candidate) confirm(ctx context.Context, token table.Token, names []string) (Instant, error) {
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.LeaseRecord.Lease)
	defer cancel()
	var sent Instant
	stamped := table.Table{Store: stamp{c.Table.Store, func() { sent = c.Clock.Now() }}}
	confirm := func(ctx context.Context) error { return stamped.Confirm(ctx, token, c.LeaseRecord, names...) }
	heartbeat := func(ctx context.Context) error { return c.Table.Heartbeat(ctx, token, names...) }

	var cause error // what went wrong first, not last
	retry := Backoff{First: c.LeaseRecord.Lease / 200, Max: c.LeaseRecord.Lease / 10}
	for {
		err := c.try(running, confirm)
		switch {
		case err == nil:
			return sent, nil
		case Lasting(err):
			return sent, err
		case !errors.Is(err, table.ErrAborted):
			sent = c.Clock.Now()
			answer := c.try(running, heartbeat)
			if answer == nil {
				return sent, nil
			}
			if First(answer) && First(err) {
				return sent, err
			}
		}
		if cause == nil {
			cause = err
		}
		Sleep(ctx, c.Clock, retry.Pause(c.Clock))
		if ctx.Err() != nil || running.Err() != nil {
			return sent, fmt.Errorf("its outcome is not known: %w", cause)
		}
	}
}

// stamp is a Store that notes when a transaction has read, and its commit is about to be sent. The lease counts from
// the commit, not from the read before it: with slow requests that is a large part of a short lease.
type stamp struct {
	table.Store
	sent func()
}

func (s stamp) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return s.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		s.sent()
		return writes, err
	})
}

// disown frees the candidate's own claims whose replies were lost, and leaves the locks to others until it could have
// claimed them again. Otherwise it would claim them as soon as its own lease has passed, and keep them forever from
// candidates with a longer lease. A candidate that has the same id by mistake may lose a claim by it.
func (c *Candidate) disown(ctx context.Context, seen []LockView) (coolingDown bool) {
	if !c.unsure {
		return false
	}
	var own []table.Observation
	rest := c.LeaseRecord.Lease / 3
	for _, s := range seen {
		if s.Bare() && s.Writer == c.ID {
			own, rest = append(own, s.Observation), max(rest, s.Heartbeat.Add(c.LeaseRecord.Lease).Sub(s.At))
		}
	}
	if own == nil {
		return false
	}
	// An error is retried after the next look.
	_ = c.try(ctx, func(ctx context.Context) error { return c.Table.Disown(ctx, c.ID, own...) })
	c.coolDown.begin(c.Clock, rest)
	return true
}

// withdraw frees what the candidate can't confirm, whether a confirmation was applied after all or not. It cools down
// for a lease, or, after an error that is known at once, for a minute, because the locks are free nearly all the time
// then.
func (c *Candidate) withdraw(ctx context.Context, token table.Token, names []string, why error) {
	length := c.LeaseRecord.Lease
	if Lasting(why) {
		length = min(length, time.Minute)
	}
	c.coolDown.begin(c.Clock, length)
	c.insist(ctx, func(ctx context.Context) error { return c.Table.Withdraw(ctx, token, names...) })
}

// insist retries freeing locks, for the time of one attempt: other transactions of this process may abort each. A lock
// that it fails to free expires.
func (c *Candidate) insist(ctx context.Context, free func(context.Context) error) {
	_ = c.try(ctx, func(ctx context.Context) error {
		return Insist(ctx, c.Clock, Attempt(c.LeaseRecord.Lease), free)
	})
}
