package spindle

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// candidacy is what a candidate remembers from one observation to the next.
type candidacy struct {
	own table.Token // of this Lock's last claim: whenever it stands again, nobody holds that

	holder  table.Token // whose promise is cached
	promise table.Promise

	// guard is the lease of the holder that was seen last, as long as nothing has shown that its term
	// is over. Rows that vanish under a holder do not end its term before its deadline.
	guard  time.Duration
	absent time.Time // since when, by Spanner's clock, the lock row is known to be gone
	strays map[table.Token]table.Promise
}

// stand observes the lock until it can be claimed, and claims it: true once this candidate is
// confirmed, with the instant from which its lease counts; false once ctx has ended.
func (e *elector) stand(ctx context.Context) (table.Token, instant, bool) {
	retry := backoff{max: e.config.poll}
	for ctx.Err() == nil {
		o, pause, err := e.look(ctx)
		if err == nil && pause <= 0 {
			var token table.Token
			var sent instant
			token, sent, err = e.claim(ctx, o)
			if err == nil {
				e.problems.clear()
				return token, sent, true
			}
		}
		switch {
		case ctx.Err() != nil:
		case err == nil:
			e.problems.clear()
			retry.reset()
			e.sleep(ctx, pause)
		case errors.Is(err, table.ErrChanged), errors.Is(err, table.ErrSuperseded):
			e.log.Debug("another candidate was first", "err", err)
			e.sleep(ctx, rand.N(e.config.lease/100)) // and will be seen at the next look
		default:
			e.problems.note(err)
			e.sleep(ctx, retry.pause())
		}
	}
	return 0, instant{}, false
}

// look observes the lock once and says how long to pause before the next look: not at all where the
// lock can be claimed. A lease is never slept past, but for a hundredth of it at random, so that of
// many candidates a few claim at a time.
func (e *elector) look(ctx context.Context) (table.Observation, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, e.attempt())
	defer cancel()
	o, err := e.table.Observe(ctx, e.name)
	if err != nil {
		return o, 0, e.wrap("observe", err)
	}
	free, err := e.freeIn(ctx, o)
	if err != nil {
		return o, 0, e.wrap("observe", err)
	}
	if free <= 0 {
		return o, 0, nil
	}
	return o, min(jitter(e.config.poll), free+rand.N(e.config.lease/100)), nil
}

// freeIn says how long after the observation the lock can be claimed.
func (e *elector) freeIn(ctx context.Context, o table.Observation) (time.Duration, error) {
	c := &e.candidacy
	if !o.Exists {
		return c.absentFor(o, e.config.lockDelay), nil
	}
	c.absent = time.Time{}
	switch {
	case o.Heartbeat.IsZero():
		c.guard = 0
		return 0, nil
	case e.config.reclaim && o.Writer == e.config.id:
		return 0, nil
	case o.Token == c.own && c.own != 0 && e.config.lockDelay == 0:
		return 0, nil
	case !o.Confirmed():
		c.guard = e.config.lease
		return o.Heartbeat.Add(e.config.lease).Sub(o.At), nil
	}
	lease, err := e.leaseOf(ctx, o)
	if err != nil {
		c.guard = max(c.guard, e.config.lease) // there is a holder all the same
		return 0, err
	}
	c.guard = lease
	return o.Heartbeat.Add(lease + e.config.lockDelay).Sub(o.At), nil
}

// absentFor is freeIn for a lock that has no row. It is free at once, unless its row was deleted under
// a holder: that one can't extend its lease any more, but may not know yet. A holder shows in its
// stray lease row, or was seen before.
func (c *candidacy) absentFor(o table.Observation, lockDelay time.Duration) time.Duration {
	if c.absent.IsZero() {
		c.absent, c.strays = o.At, o.Strays
	}
	for token, p := range o.Strays {
		if _, known := c.strays[token]; !known {
			c.absent, c.strays = o.At, o.Strays
		}
		if token != c.own {
			c.guard = max(c.guard, p.Lease)
		}
	}
	if c.guard == 0 {
		return 0
	}
	return c.absent.Add(c.guard + lockDelay).Sub(o.At)
}

// leaseOf returns the lease that the holder promised to keep, and this candidate's own where somebody
// deleted the promise.
func (e *elector) leaseOf(ctx context.Context, o table.Observation) (time.Duration, error) {
	c := &e.candidacy
	if o.Token == c.holder && c.holder != 0 {
		return c.promise.Lease, nil
	}
	p, ok, err := e.table.Promise(ctx, e.name, o.Token)
	if err != nil {
		return 0, err
	}
	if !ok {
		return e.config.lease, nil
	}
	c.holder, c.promise = o.Token, p
	if o.At.Sub(o.Heartbeat) < p.Lease {
		e.log.Info("leader seen", "leader", o.Writer, "token", Token(o.Token))
		e.emit(Event{Kind: LeaderSeen, Token: Token(o.Token), Leader: leaderOf(o, p)})
	}
	return p.Lease, nil
}

// claim claims and confirms. The end of ctx does not interrupt it: an election that is half done costs
// the other candidates a lease.
func (e *elector) claim(ctx context.Context, o table.Observation) (table.Token, instant, error) {
	running := context.WithoutCancel(ctx)
	attempt, cancel := context.WithTimeout(running, e.attempt())
	defer cancel()
	token, err := e.table.Claim(attempt, e.config.id, o)
	if err != nil {
		return 0, instant{}, e.wrap("claim", err)
	}
	e.candidacy = candidacy{own: token} // whoever was seen before is superseded
	sent, err := e.confirm(running, token)
	return token, sent, err
}

// confirm returns the instant before the confirmation was sent. Where its outcome is unknown a
// heartbeat tells, since it needs the lease row that the confirmation inserts.
func (e *elector) confirm(ctx context.Context, token table.Token) (instant, error) {
	ctx, cancel := context.WithTimeout(ctx, e.config.lease)
	defer cancel()
	promise := table.Promise{Lease: e.config.lease, Value: e.config.value}
	sent := e.clock.now()
	failed := e.try(ctx, func(ctx context.Context) error { return e.table.Confirm(ctx, token, promise, e.name) })
	retry := backoff{max: e.config.poll}
	for err := failed; err != nil; {
		if errors.Is(err, table.ErrSuperseded) || ctx.Err() != nil {
			return sent, e.wrap("confirm", failed) // not what the heartbeat said: this is the cause
		}
		e.sleep(ctx, retry.pause())
		sent = e.clock.now()
		err = e.try(ctx, func(ctx context.Context) error { return e.table.Heartbeat(ctx, token, e.name) })
	}
	return sent, nil
}

func (e *elector) try(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.attempt())
	defer cancel()
	return step(ctx)
}

// attempt limits one attempt of a candidate. The floor leaves a cold connection the time to be made;
// no RPC that is alive takes as long as the ceiling.
func (e *elector) attempt() time.Duration {
	return min(max(e.config.lease/3, time.Second), longestAttempt)
}
