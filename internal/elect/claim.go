package elect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Claim claims and confirms all that was seen, or nothing, and returns the term that begins with it. The
// end of ctx does not interrupt an attempt, as an election that is half done costs the other candidates a
// lease; but no further attempt is made then. It does not end the term.
//
// An error for which First is true says that another was first. After any other error of a confirmation
// the candidate frees its claim and leaves the locks to others for a lease at most: it may be the only one
// that can't confirm.
func (c *Candidate) Claim(ctx context.Context, seen ...Sight) (*Term, error) {
	observed := make([]table.Observation, len(seen))
	names := make([]string, len(seen))
	for i, s := range seen {
		observed[i], names[i] = s.Observation, s.Name
	}
	running := context.WithoutCancel(ctx)
	var token table.Token
	err := c.try(running, func(ctx context.Context) (err error) {
		token, err = c.Table.Claim(ctx, c.ID, observed...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	for _, name := range names { // whoever was seen before is superseded
		*c.memory(name) = memory{taken: true}
	}
	sent, err := c.confirm(ctx, token, names)
	if err != nil {
		if !First(err) {
			c.withdraw(running, token, names, err)
		}
		return nil, fmt.Errorf("confirm: %w", err)
	}
	c.own, c.gave = token, 0
	return newTerm(running, c, token, sent, names, c.deferred.deafness(c.Promise.Lease)), nil
}

// First reports whether err says that another candidate was first.
func First(err error) bool {
	return errors.Is(err, table.ErrChanged) || errors.Is(err, table.ErrSuperseded)
}

// confirm returns the instant before what confirmed the claim was sent. Unless the outcome of the
// confirmation is known, a heartbeat tells, since it needs the lease rows that the confirmation inserts.
// That goes for a refusal too: it may come from a second attempt, below this one, after a first that was
// applied. Nobody else can claim before the lease of the bare claim is over.
func (c *Candidate) confirm(ctx context.Context, token table.Token, names []string) (Instant, error) {
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Promise.Lease)
	defer cancel()
	confirm := func(ctx context.Context) error { return c.Table.Confirm(ctx, token, c.Promise, names...) }
	heartbeat := func(ctx context.Context) error { return c.Table.Heartbeat(ctx, token, names...) }

	var cause error // what went wrong first, not last
	retry := Backoff{First: c.Promise.Lease / 200, Max: c.Promise.Lease / 10}
	for {
		sent := c.Clock.Now()
		err := c.try(running, confirm)
		switch {
		case err == nil:
			return sent, nil
		case Lasting(err):
			return sent, err
		case !errors.Is(err, table.ErrAborted):
			sent = c.Clock.Now()
			told := c.try(running, heartbeat)
			if told == nil {
				return sent, nil
			}
			if First(told) && First(err) {
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

// withdraw frees what the candidate can't confirm, whether a confirmation was applied after all or not. What
// fails expires. Then it rests: for a lease, or for a minute after an error that is known at once, as the locks
// are free nearly all the time then.
func (c *Candidate) withdraw(ctx context.Context, token table.Token, names []string, why error) {
	c.resting, c.rest, c.gave = c.Clock.Now(), c.Promise.Lease, 0
	if Lasting(why) {
		c.rest = min(c.rest, time.Minute)
	}
	_ = c.try(ctx, func(ctx context.Context) error { return c.Table.Withdraw(ctx, token, names...) })
}
