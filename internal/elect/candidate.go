// Package elect decides when to take each step of the protocol. A Candidate polls locks and claims them. A Term is the
// period during which it holds them, and a Keeper sends the term's heartbeats. The same code works for one lock or
// several, because each step is a single commit for all the locks.
//
//   - clock.go: the time; tests replace only the clock and the table's Store
//   - observer.go: reading the state of locks; history.go: deciding when a lock is free
//   - claim.go, free.go: winning a lock; step.go: one poll, and the claim that may follow it
//   - gate.go: how many claims are sent at once; patience.go: when to give up because Spanner refuses requests
//   - yield.go: when a candidate leaves a lock to other candidates; handover.go: what it does when a holder leaves
//   - term.go: the phases of a term; keep.go: its heartbeats; end.go: its announcement and its release
package elect

import (
	"context"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// longestAttempt limits each attempt at a step, so that an unresponsive server does not use up a long lease.
const longestAttempt = 10 * time.Second

// Candidate competes for locks. It must not be used by more than one goroutine at a time, and it must not claim a lock
// that it still holds.
type Candidate struct {
	Table       table.Table
	Clock       Clock
	Names       []string          // the locks to compete for
	ID          string            // the holder's id in the table
	LeaseRecord table.LeaseRecord // written when a term begins
	LockDelay   time.Duration
	Reclaim     bool
	HoldOff     func(name string) time.Duration // how long to leave a lock to other candidates; may be nil
	Queue       Queue                           // what its polls read together with the locks; may be nil
	FreeRows    bool                            // use free rows to claim, and leave free rows on release, which halves the requests for locks that change hands often
	Gate        Entrance                        // limits the claims

	memory
}

// memory is what a candidate remembers between its steps.
type memory struct {
	observer   observer
	past       past
	preference preference
	coolDown   Pause    // the candidate leaves the locks to others
	yielded    bool     // the cool-down also ends when another candidate holds a lock
	rest       Pause    // like coolDown, but at the owner's request
	aborted    bool     // its last claim was aborted, and no poll has shown since whether that was wasted
	unsure     []string // the locks whose last claim has an unknown outcome; never changed in place, because copies of a candidate share it
	contests   int      // the number of consecutive claims lost to other candidates
	retry      Backoff
}

// Queue is a queue that a candidate's polls read together with the locks.
type Queue interface {
	Asks() *table.Beside         // returns what the next poll must read of the queue
	Learns(answer *table.Beside) // is called when the poll has been answered
}

// Again returns a copy of c that can compete for the locks once more. The copy keeps c's pauses and what c knows about
// its own terms, but not the rows that c has read.
func (c *Candidate) Again() Candidate {
	again := *c
	again.observer, again.contests, again.retry = observer{}, 0, Backoff{}
	return again
}

// LockView describes one lock as a poll showed it.
type LockView struct {
	table.Observation
	FreeIn      time.Duration // time from the observation until the lock can be claimed; zero or negative: now
	FreeFor     time.Duration // how long the lock had been claimable when it was observed, as far as its rows show
	NotReleased bool          // the last holder did not give it back, and might not know yet that its term has ended
	Last        time.Time     // when it was last known to be held, by a holder's heartbeat or release; zero: unknown
}

// Look reads the state of all the locks as of one instant. This usually takes one RPC. A second RPC follows if there
// are holders whose lease records Look has not read before, and one more if rows are missing.
func (c *Candidate) Look(ctx context.Context) ([]LockView, error) {
	c.past.settle()
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, Attempt(c.LeaseRecord.Lease))
	defer cancel()
	began := c.Clock.Now()
	on := c.Table
	var beside *table.Beside
	if c.Queue != nil {
		beside = c.Queue.Asks()
		on = on.Beside(beside)
	}
	observed, err := c.observer.observe(ctx, on, c)
	if beside != nil && !beside.At.IsZero() {
		c.Queue.Learns(beside)
	}
	if err == nil || !IsOver(caller) { // a poll that its caller has ended says nothing about the database
		c.preference.looked(began, err)
	}
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	views := make([]LockView, len(observed))
	for i, o := range observed {
		rules, h := c.rules(o.Name), c.observer.history(o.Name)
		h.learn(o, rules)
		o.LeaseRecord = h.leaseRecordOf(o.Token)
		if o.LeaseRecord != nil && o.LeaseRecord.ListDigest != "" && c.LeaseRecord.ListDigest == "" {
			return nil, fmt.Errorf("observe: lock %q %w", o.Name, table.ErrGroup)
		}
		h.learnLeaving(o, began)
		c.recognise(o)
		free := h.freeIn(o, rules)
		if o.Confirmed() && free > 0 && len(c.unsure) > 0 { // changed since the claim, which can no longer be applied
			c.unsure = without(c.unsure, []string{o.Name})
		}
		views[i] = LockView{Observation: o, FreeIn: max(free, c.restsFor(o.Name)), FreeFor: max(-free, 0), NotReleased: h.notReleased(o), Last: h.last}
	}
	return views, nil
}

// recognise notes that another candidate holds the lock, if one does.
func (c *Candidate) recognise(o table.Observation) {
	if own, _ := c.past.on(o.Name); o.Confirmed() && o.Token != own {
		c.yieldedTo()
		c.preference.see(o, c.LeaseRecord.Rank)
	}
}

func (c *Candidate) rules(name string) rules {
	own, unkept := c.past.on(name)
	return rules{lease: c.LeaseRecord.Lease, delay: c.LockDelay, reclaim: c.Reclaim, id: c.ID, rank: c.LeaseRecord.Rank,
		own: own, unkept: unkept, yieldFor: c.past.yieldFor}
}

// Attempt returns the time limit for one attempt at a step that no held lease depends on, such as a claim. The limit is
// a third of the lease, but at least a second, which leaves time to open a connection. It is at most longestAttempt,
// because no RPC to a healthy server takes that long.
func Attempt(lease time.Duration) time.Duration {
	return min(max(lease/3, time.Second), longestAttempt)
}

func (c *Candidate) try(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Attempt(c.LeaseRecord.Lease))
	defer cancel()
	return step(ctx)
}

// IsOver reports whether ctx has ended or its deadline has passed. On a busy machine, a request can fail because of the
// deadline before ctx's own timer fires.
func IsOver(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && time.Until(deadline) <= 0
}
