// Package candidacy stands for one lock, one look at a time, for callers that have something to do or to
// decide between two looks.
package candidacy

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Candidacy is a candidate for one lock. It belongs to one goroutine.
type Candidacy struct {
	candidate elect.Candidate
	poll      time.Duration
	retry     elect.Backoff
	taken     bool // when the lock row was seen last, it was not released
}

// New returns a candidate that looks each poll, and when the lease that it saw can expire.
func New(c elect.Candidate, poll time.Duration) *Candidacy {
	return &Candidacy{candidate: c, poll: poll, retry: elect.Backoff{Max: poll}}
}

// An Outcome is what came of one look.
type Outcome struct {
	Term  *elect.Term   // of the lock that was claimed, or nil
	Dead  bool          // it was taken from a holder that did not give it back, and may not know yet
	Seen  *elect.Sight  // what was seen, or nil
	Pause time.Duration // until the next look
	Err   error         // why nothing was seen or claimed, unless another was first
}

// Try looks at the lock once, and claims it if it is free. The end of ctx ends the looking, not a claim or
// the term that begins with it.
func (c *Candidacy) Try(ctx context.Context) Outcome {
	seen, err := c.candidate.Look(ctx)
	if err != nil {
		return Outcome{Err: err, Pause: c.retry.Pause(c.candidate.Clock)}
	}
	s := &seen[0]
	dead := c.dead(s.Observation)
	if s.Free > 0 {
		c.retry.Reset()
		return Outcome{Seen: s, Pause: min(elect.Jitter(c.candidate.Clock, c.poll), s.Free+c.candidate.Spread(*s))}
	}
	t, err := c.candidate.Claim(context.WithoutCancel(ctx), *s)
	switch {
	case err == nil:
		c.retry.Reset()
		return Outcome{Term: t, Seen: s, Dead: dead}
	case errors.Is(err, table.ErrChanged), errors.Is(err, table.ErrSuperseded):
		return Outcome{Seen: s, Pause: c.candidate.Spread(*s)} // who was first will be seen at the next look
	}
	return Outcome{Seen: s, Err: err, Pause: c.retry.Pause(c.candidate.Clock)}
}

// dead tells a lock that was given back, or never held, from one whose last holder may be at work still.
// A bare claim counts as dead: whom it superseded is not known. So does a row that has vanished.
func (c *Candidacy) dead(o table.Observation) bool {
	if o.Exists {
		c.taken = !o.Heartbeat.IsZero()
	}
	return c.taken || len(o.Strays) > 0
}
