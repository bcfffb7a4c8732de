package elect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// A Step is the result of one poll, and of the claim that followed if a lock could be claimed.
type Step struct {
	Seen        []LockView    // the locks as the poll showed them, or nil
	Term        *Term         // the term of the locks that were claimed, or nil
	Pause       time.Duration // until the next step, if Term is nil
	Latest      time.Duration // like Pause, for a candidate that learns from elsewhere that the holders are alive
	Err         error         // why the poll or claim failed; nil if another candidate was first, unless that keeps happening
	Lost        bool          // another candidate claimed the locks first, or the claim was aborted, which looks the same
	CoolingDown bool          // the candidate leaves the locks to other candidates, for example because it could not confirm
}

// Decision is what to do after a poll: claim some of the locks, wait, or give up because the candidate is blocked.
type Decision struct {
	Claim   []LockView    // the locks to claim; nil: none
	Also    []table.Write // more writes for the claim's commit
	Urgency Urgency       // of the claim
	Wait    time.Duration // if there is nothing to claim: the longest pause before the next poll, apart from the spread
	Err     error         // why nothing is claimed, if waiting alone does not help
}

// Choose decides what to do about the locks that a poll has shown.
type Choose func(seen []LockView) Decision

// All decides to claim all the locks as soon as they are free at the same instant.
func All(seen []LockView) Decision {
	var wait time.Duration
	for _, s := range seen {
		wait = max(wait, s.FreeIn)
	}
	if wait > 0 {
		return Decision{Wait: wait}
	}
	return Decision{Claim: seen}
}

// Try polls the locks once, and claims the locks that the function choose selects. If Step.Term is nil, Step.Pause is
// the time to wait before the next call of Try. The pause is at most maxPause or, if maxPause is zero, a third of the
// shortest lease of the candidate and the holders. If the locks can be claimed sooner, the pause ends then, or a short
// random time later. While a holder is leaving, pauses are usually shorter (see watch).
//
// A claim may have to wait for a place in the gate. If it has waited for more than lease/50, Try polls and decides
// again, because the first poll may be out of date.
//
// If ctx ends, the poll and the wait for a place end. See claim for what happens to a claim.
func (c *Candidate) Try(ctx context.Context, choose Choose, maxPause time.Duration) Step {
	step, d := c.poll(ctx, choose, maxPause)
	wasted := c.aborted && d.Claim != nil
	c.aborted = c.aborted && step.Seen == nil // only the first poll after an abort shows whether it was wasted
	if d.Claim == nil {
		return step
	}
	polled := c.Clock.Now()
	p, err := c.Gate.enter(ctx, c.Clock, d.Urgency, c.Gate.Owner, wasted)
	if err != nil {
		return Step{Seen: step.Seen, Err: err}
	}
	defer p.leave()
	if c.Clock.Now().Ran(polled) > c.LeaseRecord.Lease/50 { // other claims wait until this poll has been answered
		if step, d = c.poll(table.Apart(ctx, 1), choose, maxPause); d.Claim == nil {
			return step
		}
	}
	return c.tryToClaim(ctx, step.Seen, d, p)
}

// poll polls the locks once and decides what to do. If it decides to claim, only the step's field Seen is set.
func (c *Candidate) poll(ctx context.Context, choose Choose, maxPause time.Duration) (Step, Decision) {
	seen, err := c.Look(ctx)
	if maxPause == 0 {
		maxPause = shortest(c.LeaseRecord.Lease, seen) / 3
	}
	c.retry.Max = maxPause
	if err != nil {
		return Step{Err: err, Pause: c.retry.Pause(c.Clock)}, Decision{}
	}
	if slices.ContainsFunc(seen, func(s LockView) bool { return s.Confirmed() && s.FreeIn > 0 }) {
		c.contests = 0
	}
	if c.disown(ctx, seen) {
		return Step{Seen: seen, Pause: min(Jitter(c.Clock, maxPause), c.coolDown.Left(c.Clock)), CoolingDown: true}, Decision{}
	}
	switch d := choose(seen); {
	case d.Err != nil:
		return Step{Seen: seen, Err: d.Err, Pause: c.retry.Pause(c.Clock)}, d
	case d.Claim == nil:
		c.retry.Reset()
		latest := min(d.Wait+c.spread(seen), c.watch(seen))
		pause := min(Jitter(c.Clock, maxPause), latest)
		return Step{Seen: seen, Pause: c.signal(ctx, seen, pause), Latest: latest, CoolingDown: c.coolDown.Left(c.Clock) > 0}, d
	default:
		return Step{Seen: seen}, d
	}
}

func (c *Candidate) tryToClaim(ctx context.Context, seen []LockView, d Decision, p *place) Step {
	t, err := c.claim(ctx, c.Table.And(d.Also...), d.Claim...)
	if c.aborted = errors.Is(err, table.ErrAborted); !c.aborted {
		p.answered()
	}
	switch {
	case err == nil:
		c.retry.Reset()
		c.contests = 0
		return Step{Seen: seen, Term: t}
	case First(err):
		c.contests++
		step := Step{Seen: seen, Lost: true, Pause: min(c.retry.Max, c.spread(seen))} // the next poll shows which candidate was first
		if c.contests >= lostInARow {
			step.Err = fmt.Errorf("%d claims in a row have failed, although no process holds the lock: %w", c.contests, err)
		}
		return step
	}
	return Step{Seen: seen, Err: err, Pause: c.retry.Pause(c.Clock)}
}

// lostInARow is the number of consecutive lost claims at which Try begins to return errors. It is rarely reached: even
// among a thousand candidates, one holds the lock after a few claims, and the others then count from zero.
const lostInARow = 10

// longestSpread is enough for thousands of candidates, however long the lease is.
const longestSpread = time.Second

// spread returns a random time to wait after the locks become free, because many candidates know when that happens. The
// maximum is a fiftieth of the shortest lease of the last holders, or one second if that is shorter. It doubles with
// each consecutive lost claim, up to a quarter of that lease or ten seconds, whichever is shorter. Otherwise, a very
// large number of candidates would keep colliding.
func (c *Candidate) spread(seen []LockView) time.Duration {
	lease := c.LeaseRecord.Lease
	for i, s := range seen {
		if last := c.observer.history(s.Name).paceOr(c.LeaseRecord.Lease); i == 0 || last < lease {
			lease = last
		}
	}
	return c.Clock.Random(min(min(lease/50, longestSpread)<<min(c.contests, 8), lease/4, LongestPause) + 1)
}

// shortest returns the shortest lease of the candidate and the holders.
func shortest(lease time.Duration, seen []LockView) time.Duration {
	for _, s := range seen {
		if s.LeaseRecord != nil {
			lease = min(lease, s.LeaseRecord.Lease)
		}
	}
	return lease
}
