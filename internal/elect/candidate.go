package elect

import (
	"context"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// longestAttempt limits one attempt of any step: a server that hangs must not cost a long lease.
const longestAttempt = 10 * time.Second

// Candidate competes for locks. It belongs to one goroutine at a time, and claims only what it does not hold.
type Candidate struct {
	Table       table.Table
	Clock       Clock
	Names       []string          // that it looks at
	ID          string            // the holder's id in the table
	LeaseRecord table.LeaseRecord // made with each term
	LockDelay   time.Duration
	Reclaim     bool
	HoldOff     func() time.Duration // for how long it leaves the locks to others; nil: it need not
	FreeRows    bool                 // claims by free rows, and leaves them: this halves the requests for locks that change hands often

	observer   observer
	past       past
	coolDown   coolDown
	preference preference
	unsure     bool // the outcome of its last claim is not known
	contests   int  // how many claims in a row another was first in
	retry      Backoff
}

// Again returns the candidate for another competition: it has forgotten what it saw, and keeps its cool-down.
func (c *Candidate) Again() Candidate {
	again := *c
	again.observer, again.contests, again.retry = observer{}, 0, Backoff{}
	return again
}

// LockView is one lock as a look showed it.
type LockView struct {
	table.Observation
	FreeIn      time.Duration // how long after the observation the lock can be claimed: now, if not positive
	FreeFor     time.Duration // how long it had been claimable when it was observed, as far as its rows tell
	NotReleased bool          // its last holder did not give it back, and may not know yet that its term is over
	Last        time.Time     // when it was last known to be held: the last heartbeat of a holder, or its release; zero: not known
}

// Look observes all locks at one instant. It takes one RPC, another for holders not seen before, and another if rows
// are missing.
func (c *Candidate) Look(ctx context.Context) ([]LockView, error) {
	c.past.settle()
	ctx, cancel := context.WithTimeout(ctx, Attempt(c.LeaseRecord.Lease))
	defer cancel()
	began := c.Clock.Now()
	observed, err := c.observer.observe(ctx, c)
	c.preference.looked(began, err)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	rules, views := c.rules(), make([]LockView, len(observed))
	for i, o := range observed {
		h := c.observer.history(o.Name)
		h.learn(o, rules)
		o.LeaseRecord = h.leaseRecordOf(o.Token)
		if o.LeaseRecord != nil && o.LeaseRecord.ListDigest != "" && c.LeaseRecord.ListDigest == "" {
			return nil, fmt.Errorf("observe: lock %q %w", o.Name, table.ErrGroup)
		}
		h.learnLeaving(o, began)
		c.recognise(o)
		free := h.freeIn(o, rules)
		views[i] = LockView{Observation: o, FreeIn: max(free, c.restsFor()), FreeFor: max(-free, 0), NotReleased: h.notReleased(o), Last: h.last}
	}
	return views, nil
}

// restsFor returns for how long the candidate leaves the locks to others.
func (c *Candidate) restsFor() time.Duration {
	left := c.coolDown.left(c.Clock)
	if c.HoldOff != nil {
		left = max(left, c.HoldOff())
	}
	return left
}

// recognise notes that another holds a lock.
func (c *Candidate) recognise(o table.Observation) {
	if o.Confirmed() && o.Token != c.past.own {
		c.coolDown.yieldedTo()
		c.preference.see(o, c.LeaseRecord.Rank)
	}
}

func (c *Candidate) rules() rules {
	return rules{lease: c.LeaseRecord.Lease, delay: c.LockDelay, reclaim: c.Reclaim, id: c.ID, rank: c.LeaseRecord.Rank,
		own: c.past.own, unkept: c.past.unkept, yieldFor: c.past.yieldFor}
}

// Attempt limits one attempt of a candidate, or of another step that no lease waits for. The floor leaves time to make
// a cold connection; no live RPC takes as long as the ceiling.
func Attempt(lease time.Duration) time.Duration {
	return min(max(lease/3, time.Second), longestAttempt)
}

func (c *Candidate) try(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Attempt(c.LeaseRecord.Lease))
	defer cancel()
	return step(ctx)
}
