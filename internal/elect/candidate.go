package elect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// longestAttempt limits one attempt of whatever step: a server that hangs must not cost a long lease.
const longestAttempt = 10 * time.Second

// Candidate competes for locks. It belongs to one goroutine at a time, and claims only what it does not hold.
type Candidate struct {
	Table       table.Table
	Clock       Clock
	Names       []string          // the locks that it looks at
	ID          string            // written as the holder's
	LeaseRecord table.LeaseRecord // made with each term
	LockDelay   time.Duration
	Reclaim     bool
	FreeRows    bool // claims by free rows, and leaves them: locks that change hands often cost half the requests so

	own          table.Token // of its last term: when it competes again, nobody holds that
	term         *Term       // the last one, until the candidate competes again
	unkept       table.Token // the same, if it expired as heartbeats failed
	yieldFor     time.Duration
	expired      int // terms in a row that did
	seen         map[string]*lockHistory
	unsure       bool    // the outcome of its last claim is not known
	coolingSince Instant // since when it leaves the locks to others
	coolDown     time.Duration
	yielded      table.Token // of the term that it gave up, if that is why it cools down
	preference   preference
	contests     int // claims in a row in which another was first
	retry        Backoff
}

// Again is the candidate for another competition: it has forgotten what it saw, and cools down on if it has to.
func (c *Candidate) Again() Candidate {
	again := *c
	again.seen, again.contests, again.retry = nil, 0, Backoff{}
	return again
}

// LockView is one lock as it was seen.
type LockView struct {
	table.Observation
	FreeIn      time.Duration // how long after the observation the lock can be claimed: now, if not positive
	FreeFor     time.Duration // how long it could be claimed when it was observed, as far as its rows tell
	NotReleased bool          // whoever had it did not give it back, and may not know yet that it is over
	Last        time.Time     // when it was last known to be held: the last heartbeat of a holder, or its release; zero: not known
}

// Look observes all locks at one instant. It takes one RPC; another for holders that were not seen before,
// and another if rows are missing.
func (c *Candidate) Look(ctx context.Context) ([]LockView, error) {
	c.comeBack()
	ctx, cancel := context.WithTimeout(ctx, Attempt(c.LeaseRecord.Lease))
	defer cancel()
	began := c.Clock.Now()
	observed, err := c.observe(ctx)
	c.preference.looked(began, err)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	views := make([]LockView, len(observed))
	for i, o := range observed {
		h := c.history(o.Name)
		h.learn(o, c.rules())
		o.LeaseRecord = h.leaseRecordOf(o.Token)
		if o.LeaseRecord != nil && o.LeaseRecord.ListDigest != "" && c.LeaseRecord.ListDigest == "" {
			return nil, fmt.Errorf("observe: lock %q %w", o.Name, table.ErrGroup)
		}
		c.recognise(o, h, began)
		free := h.freeIn(o, c.rules())
		views[i] = LockView{Observation: o, FreeIn: max(free, c.coolDownLeft()), FreeFor: max(-free, 0), NotReleased: h.notReleased(o), Last: h.last}
	}
	return views, nil
}

// comeBack takes in how the candidate's last term ended. If it expired because heartbeats failed, the candidate could win
// the lock and not keep it. It must not win the next term before others may claim, or it would keep the lock from those who
// can keep it. So it waits for the end of its own lease as they do, and from the second such term in a row, it lets them go
// first. A term that was kept for ten leases begins a new row.
func (c *Candidate) comeBack() {
	t := c.term
	if c.term = nil; t == nil {
		return
	}
	c.unkept, c.yieldFor = 0, 0
	if t.kept() >= 10*t.lease {
		c.expired = 0
	}
	if !errors.Is(context.Cause(t.work), ErrExpired) || !t.inJeopardy() {
		return
	}
	c.unkept = t.token
	if c.expired++; c.expired > 1 {
		c.yieldFor = t.lease / 3
	}
}

// observe reads the lease rows along with the lock rows while nothing is known yet, if a lock row was missing
// before, and wherever the lock rows leave something open. Each read is of one instant. What is learned from one
// only makes the candidate more careful, if the next fails.
func (c *Candidate) observe(ctx context.Context) ([]table.Observation, error) {
	if c.seen == nil || slices.ContainsFunc(c.Names, c.missed) { // the wall clock only bounds the keys that are read
		return c.Table.LookAtLeases(ctx, c.Clock.Now().Time(), c.Names...)
	}
	observed, err := c.glance(ctx)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(observed, c.unfamiliar) {
		c.learn(observed)
		if observed, err = c.Table.Inspect(ctx, observed...); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(observed, c.incomplete) {
		c.learn(observed)
		return c.Table.LookAtLeases(ctx, observed[0].At, c.Names...)
	}
	return observed, nil
}

// glance reads the lock rows, and what is needed to claim by free rows.
func (c *Candidate) glance(ctx context.Context) ([]table.Observation, error) {
	if !c.FreeRows {
		return c.Table.Observe(ctx, c.Names...)
	}
	since := make([]table.Token, len(c.Names))
	var at time.Time
	for i, name := range c.Names {
		h := c.history(name)
		since[i], at = h.token, h.at
	}
	return c.Table.Follow(ctx, at, since, c.Names...)
}

// missed tells a lock whose row was not there when it was seen last.
func (c *Candidate) missed(name string) bool { return !c.history(name).absent.IsZero() }

// unfamiliar tells a holder whose lease record is not known.
func (c *Candidate) unfamiliar(o table.Observation) bool {
	return o.Confirmed() && o.LeaseRecord == nil && c.history(o.Name).leaseRecordOf(o.Token) == nil
}

// incomplete tells a lock that has no row, or is held and has no lease row: orphan leases may tell by whom.
func (c *Candidate) incomplete(o table.Observation) bool { return !o.Exists || c.unfamiliar(o) }

func (c *Candidate) learn(observed []table.Observation) {
	for _, o := range observed {
		if o.Exists { // orphan leases were not looked for
			c.history(o.Name).learn(o, c.rules())
		}
	}
}

func (c *Candidate) rules() rules {
	return rules{lease: c.LeaseRecord.Lease, delay: c.LockDelay, reclaim: c.Reclaim, id: c.ID, own: c.own, unkept: c.unkept, yieldFor: c.yieldFor, rank: c.LeaseRecord.Rank}
}

func (c *Candidate) history(name string) *lockHistory {
	h := c.seen[name]
	if h == nil {
		if c.seen == nil {
			c.seen = map[string]*lockHistory{}
		}
		h = &lockHistory{}
		c.seen[name] = h
	}
	return h
}

// coolDownLeft is how long the candidate still has to leave the locks to others: not at all, if not positive.
func (c *Candidate) coolDownLeft() time.Duration {
	if c.coolDown == 0 {
		return 0
	}
	return c.coolDown - c.Clock.Now().Since(c.coolingSince)
}

// Attempt limits one attempt of a candidate, or of another step that no lease waits for. The floor leaves a cold
// connection the time to be made; no RPC that is alive takes as long as the ceiling.
func Attempt(lease time.Duration) time.Duration {
	return min(max(lease/3, time.Second), longestAttempt)
}

func (c *Candidate) try(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Attempt(c.LeaseRecord.Lease))
	defer cancel()
	return step(ctx)
}
