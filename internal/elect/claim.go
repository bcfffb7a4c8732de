package elect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// claimant is a candidate during one claim.
type claimant struct {
	*Candidate
	on    table.Table // adds the caller's writes to the claim's commit
	names []string
}

// claim claims and confirms all the given locks, or none of them, and returns the new term. If ctx ends, claim does not
// stop halfway, because an unconfirmed claim would block the other candidates until it expired. However, once ctx has
// ended, a claim or a confirmation that fails is not repeated. The term does not end with ctx.
//
// If First(err) is true, another candidate has probably claimed the locks first. If the confirmation fails for any
// other reason, the candidate withdraws its claim. It then leaves the locks to other candidates for up to one lease
// duration, because they might be able to confirm a claim.
func (c *Candidate) claim(ctx context.Context, on table.Table, seen ...LockView) (*Term, error) {
	observed, names := make([]table.Observation, len(seen)), make([]string, len(seen))
	for i, s := range seen {
		observed[i], names[i] = s.Observation, s.Name
	}
	return claimant{c, on, names}.claim(ctx, observed)
}

func (c claimant) claim(ctx context.Context, observed []table.Observation) (*Term, error) {
	running := context.WithoutCancel(ctx)
	if claim, ok := c.freeClaim(observed); ok {
		sent, err := c.claimFree(ctx, claim)
		switch {
		case err == nil:
			c.know(nil)
			c.supersede()
			return c.begin(running, claim.Token, sent), nil
		case !refusedTime(err):
			return nil, err
		}
	}
	var token table.Token
	err := c.try(running, func(ctx context.Context) (err error) {
		token, err = c.on.Claim(ctx, c.ID, observed...)
		return err
	})
	if c.know(err); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	c.supersede()
	sent, err := c.confirm(ctx, token)
	if err != nil {
		if !First(err) {
			c.withdraw(running, token, err)
		}
		return nil, fmt.Errorf("confirm: %w", err)
	}
	return c.begin(running, token, sent), nil
}

// know remembers whether the outcome of a claim is unknown. If another claim was first, know changes nothing, because
// that claim may be an earlier one of this candidate.
func (c claimant) know(err error) {
	if First(err) {
		return
	}
	c.unsure = without(c.unsure, c.names)
	if err != nil {
		c.unsure = append(c.unsure, c.names...)
	}
}

// without returns a copy of all that lacks the names.
func without(all, names []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(names, name) })
}

// supersede forgets the former holders of locks that the candidate has claimed.
func (c claimant) supersede() {
	c.preference.well = Instant{} // successful polls do not prove that it can keep a term
	for _, name := range c.names {
		c.observer.forgetHolder(name, c.LeaseRecord.Lease)
	}
}

// begin returns the term of a confirmed claim. The term's deadline is measured from the given instant.
func (c claimant) begin(ctx context.Context, token table.Token, sent Instant) *Term {
	t := newTerm(ctx, c, token, sent, c.preference.ignoreFor(c.LeaseRecord.Lease))
	c.past.began(t)
	return t
}

// First reports whether err means that another candidate was first. It also returns true for an aborted claim, because
// another candidate has probably claimed the same lock. It returns false if the outcome of a confirmation is unknown.
func First(err error) bool {
	return (errors.Is(err, table.ErrChanged) || errors.Is(err, table.ErrSuperseded)) && !errors.Is(err, errUnknown)
}

// errUnknown says that a confirmation may have been applied, so the claim must be withdrawn.
var errUnknown = errors.New("the outcome is unknown")

// confirm confirms a claim, and returns the time just before it sent the request that succeeded.
//
// After most errors, confirm sends a heartbeat, which succeeds only if the lease rows were inserted. Even an error that
// says that the confirmation was rejected proves nothing, because the Spanner client may have sent the commit twice.
// The first commit may have been applied, and only the second one rejected. Meanwhile, the locks are safe. Other
// candidates wait until the unconfirmed claim has expired. Once one of them claims the locks, neither the confirmation
// nor the heartbeat can succeed.
func (c claimant) confirm(ctx context.Context, token table.Token) (Instant, error) {
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.LeaseRecord.Lease)
	defer cancel()
	var sent Instant
	stamped := c.Table
	stamped.Store = stamp{c.Table.Store, func() { sent = c.Clock.Now() }}
	confirm := func(ctx context.Context) error { return stamped.Confirm(ctx, token, c.LeaseRecord, c.names...) }
	heartbeat := func(ctx context.Context) error { return c.Table.Heartbeat(ctx, token, c.names...) }

	var cause error // the first error rather than the last
	retry := Backoff{Max: c.LeaseRecord.Lease / 10}
	for {
		err := c.try(running, confirm)
		switch {
		case err == nil:
			return sent, nil
		case hopeless(err), table.Refused(err) && cause != nil: // a single refusal may be temporary
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
			return sent, fmt.Errorf("%w: %w", errUnknown, cause)
		}
	}
}

// stamp is a Store that calls a function in each transaction, after the reads and just before the commit. The lease is
// measured from that moment rather than from the start of the transaction, because slow reads can use up a large part
// of a short lease.
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

// disown frees the candidate's own claims whose replies were lost, and reports whether there were any. The candidate
// then leaves the locks alone until those claims would have expired, and for at least a third of its lease. Without
// this pause, a candidate that keeps losing replies could claim the locks again and again, and keep them from the other
// candidates.
//
// If another candidate uses the same id by mistake, disown can free that candidate's claim.
func (c *Candidate) disown(ctx context.Context, seen []LockView) (coolingDown bool) {
	var own []table.Observation
	var names []string
	rest := c.LeaseRecord.Lease / 3
	for _, s := range seen {
		if s.Bare() && s.Writer == c.ID && slices.Contains(c.unsure, s.Name) {
			own, names = append(own, s.Observation), append(names, s.Name)
			rest = max(rest, s.Heartbeat.Add(c.LeaseRecord.Lease).Sub(s.At))
		}
	}
	if own == nil {
		return false
	}
	// If this fails, the next poll leads to another attempt.
	if err := c.try(ctx, func(ctx context.Context) error { return c.Table.Disown(ctx, c.ID, own...) }); err == nil {
		c.unsure = without(c.unsure, names)
	}
	c.cool(rest)
	return true
}

// Abandon must be called when the candidate stops competing without a term. If the reply to a claim was lost, Abandon
// polls once, and frees the claim if it was applied. Otherwise, the claim would block the other candidates until it
// expired.
func (c *Candidate) Abandon() {
	if len(c.unsure) == 0 || c.preference.sick { // in an outage, the owner need not wait for a poll that will fail
		return
	}
	ctx := context.Background()
	if seen, err := c.Look(ctx); err == nil {
		c.disown(ctx, seen)
	}
}

// withdraw frees locks whose confirmation failed, even if the confirmation turns out to have been applied. The
// candidate then cools down for one lease duration, but for at most a minute if Spanner refused the confirmation.
// Refusals arrive quickly, so even a candidate that claims once a minute leaves the locks free nearly all the time.
func (c claimant) withdraw(ctx context.Context, token table.Token, why error) {
	length := c.LeaseRecord.Lease
	if table.Refused(why) {
		length = min(length, time.Minute)
	}
	c.cool(length)
	c.insist(ctx, func(ctx context.Context) error { return c.Table.Withdraw(ctx, token, c.names...) })
}

// insist repeats the step that frees the locks, because a conflict with another transaction might abort it. After the
// time limit of one attempt, insist gives up, and leaves the locks to expire.
func (c claimant) insist(ctx context.Context, free func(context.Context) error) {
	_ = c.try(ctx, func(ctx context.Context) error {
		return Insist(ctx, c.Clock, Attempt(c.LeaseRecord.Lease), free)
	})
}
