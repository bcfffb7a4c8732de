package elect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Claim claims and confirms either all the given locks or none, and returns the term that begins. If ctx ends, Claim
// finishes the attempt in progress, because an unfinished election would block the other candidates until its lease
// expires, but it makes no further attempt. The term does not depend on ctx.
//
// If First reports true for the error, another candidate claimed the locks first. If a confirmation fails for any other
// reason, the candidate frees its claim and leaves the locks to other candidates for at most one lease duration,
// because it might be the only candidate that can't confirm.
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

// supersede forgets the former holders of locks that the candidate has claimed.
func (c *Candidate) supersede(names []string) {
	c.preference.well = Instant{} // successful looks do not prove that it can keep a term
	for _, name := range names {
		c.observer.forgetHolder(name, c.LeaseRecord.Lease)
	}
}

// begin returns the term of a confirmed claim. The term's deadline counts from sent.
func (c *Candidate) begin(ctx context.Context, token table.Token, sent Instant, names []string) *Term {
	t := newTerm(ctx, c, token, sent, names, c.preference.ignoreFor(c.LeaseRecord.Lease))
	c.coolDown.yielded = false
	c.past.began(t)
	return t
}

// First reports whether err means that another candidate was first.
func First(err error) bool {
	return errors.Is(err, table.ErrChanged) || errors.Is(err, table.ErrSuperseded)
}

// confirm confirms a claim and returns the instant just before the successful request was sent. If a confirmation is
// refused, or its outcome is unknown, a heartbeat decides, because it succeeds only if the confirmation has inserted
// the lease rows. A refusal proves nothing by itself: the client below this code may have sent the commit twice, so
// that the first attempt was applied and the second one refused. No other candidate can claim the locks until the lease
// of the bare claim has run out.
func (c *Candidate) confirm(ctx context.Context, token table.Token, names []string) (Instant, error) {
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.LeaseRecord.Lease)
	defer cancel()
	var sent Instant
	stamped := table.Table{Store: stamp{c.Table.Store, func() { sent = c.Clock.Now() }}}
	confirm := func(ctx context.Context) error { return stamped.Confirm(ctx, token, c.LeaseRecord, names...) }
	heartbeat := func(ctx context.Context) error { return c.Table.Heartbeat(ctx, token, names...) }

	var cause error // the first error rather than the last
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
			return sent, fmt.Errorf("the outcome is unknown: %w", cause)
		}
	}
}

// stamp is a Store that calls sent when a transaction has finished reading and is about to send its commit. The lease
// counts from the commit rather than from the read, because a slow read can take up a large part of a short lease.
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

// disown frees the candidate's own claims whose replies were lost. The candidate then leaves the locks alone until it
// could have claimed them again, but at least for a third of its lease. Otherwise it would claim them as soon as its
// own lease had passed, and would keep them forever from candidates with a longer lease. If another candidate has the
// same id by mistake, that candidate can lose a claim.
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
	// If this fails, the next look leads to another attempt.
	_ = c.try(ctx, func(ctx context.Context) error { return c.Table.Disown(ctx, c.ID, own...) })
	c.coolDown.begin(c.Clock, rest)
	return true
}

// withdraw frees locks that the candidate can't confirm, even if a confirmation has been applied after all. The
// candidate then cools down for one lease duration. After a lasting error, it cools down for at most a minute. Such an
// error is reported immediately, so even with a claim every minute the locks are free nearly all the time.
func (c *Candidate) withdraw(ctx context.Context, token table.Token, names []string, why error) {
	length := c.LeaseRecord.Lease
	if Lasting(why) {
		length = min(length, time.Minute)
	}
	c.coolDown.begin(c.Clock, length)
	c.insist(ctx, func(ctx context.Context) error { return c.Table.Withdraw(ctx, token, names...) })
}

// insist keeps trying to free locks for as long as one attempt may take, because other transactions of this process
// might abort each try. A lock that it fails to free expires.
func (c *Candidate) insist(ctx context.Context, free func(context.Context) error) {
	_ = c.try(ctx, func(ctx context.Context) error {
		return Insist(ctx, c.Clock, Attempt(c.LeaseRecord.Lease), free)
	})
}
