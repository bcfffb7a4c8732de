package elect

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// preference is what a candidate remembers of candidates of other priorities.
type preference struct {
	well  Instant     // since when its looks have succeeded
	sick  bool        // the last one did not
	asked table.Token // the last term whose holder it asked

	spurned  bool          // it yielded, and no higher priority has held the lock for three leases since
	ignoring time.Duration // how long into a term it ignores preferences
}

const longestIgnore = time.Hour

func (p *preference) looked(now Instant, err error) {
	if err != nil || p.sick || p.well == (Instant{}) {
		p.well, p.sick = now, err != nil
	}
}

// known is for how many of its leases a candidate of higher priority looks before it asks, and must hold before its
// requests are accepted as before. A holder that can't keep the lock does not get that far, even if its last heartbeats
// commit late.
const known = 3

// see notes that another candidate, of that priority, holds the lock. A holder of the own priority says nothing about
// the preferred ones.
func (p *preference) see(o table.Observation, rank int) {
	if o.LeaseRecord != nil && o.LeaseRecord.Rank < rank && o.Heartbeat.Sub(o.Token.Time()) >= known*o.LeaseRecord.Lease {
		p.spurned, p.ignoring = false, 0
	}
}

// ignoreFor is for a term that begins. A candidate that yielded, and gets the lock back, would otherwise yield again
// and again to one that can look and ask, and not hold.
func (p *preference) ignoreFor(lease time.Duration) time.Duration {
	if p.spurned {
		p.ignoring = min(max(2*p.ignoring, 10*lease), max(longestIgnore, 10*lease))
	}
	p.spurned = false
	return p.ignoring
}

// prefer asks a holder of lower priority to hand the lock over, once in its term, if the candidate's looks have
// succeeded for three leases, since its own last term if that was later. If the answer is lost, it asks again.
func (c *Candidate) prefer(ctx context.Context, seen []LockView) {
	p := &c.preference
	if p.sick || c.Clock.Now().Since(p.well) < known*c.LeaseRecord.Lease {
		return
	}
	for _, s := range seen {
		if s.FreeIn <= 0 || s.LeaseRecord == nil || !s.LeaseRecord.AcceptsHandover || s.LeaseRecord.Rank <= c.LeaseRecord.Rank || s.Leaving() || p.asked == s.Token {
			continue
		}
		err := c.try(ctx, func(ctx context.Context) error { return c.Table.Ask(ctx, table.ByPreference, s.Name, s.Token) })
		if err == nil || errors.Is(err, table.ErrSuperseded) {
			p.asked = s.Token
		}
	}
}
