package elect

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// preference is what a candidate remembers about candidates of other priorities.
type preference struct {
	well  Instant     // since when all the candidate's looks have succeeded
	sick  bool        // the last look failed
	asked table.Token // the last term whose holder the candidate asked for a handover

	spurned  bool          // it yielded, and since then no higher priority has held the lock for three leases
	ignoring time.Duration // for how long after the beginning of a term it ignores preferences
}

const longestIgnore = time.Hour

func (p *preference) looked(now Instant, err error) {
	if err != nil || p.sick || p.well == (Instant{}) {
		p.well, p.sick = now, err != nil
	}
}

// known is a number of lease durations. A candidate of higher priority must have looked successfully for that long
// before it asks for a handover. It must also hold the lock for that long before a holder that has begun to ignore such
// requests accepts them as before. A holder that can't keep the lock does not hold it for so long, even if its last
// heartbeats commit late.
const known = 3

// see makes the candidate accept preferences as usual again, once a candidate with a higher priority than the given
// rank has held the lock for three lease durations. A holder of the same priority proves nothing about candidates of a
// higher one.
func (p *preference) see(o table.Observation, rank int) {
	if o.LeaseRecord != nil && o.LeaseRecord.Rank < rank && o.Heartbeat.Sub(o.Token.Time()) >= known*o.LeaseRecord.Lease {
		p.spurned, p.ignoring = false, 0
	}
}

// ignoreFor returns how long a term that begins now ignores preferences. If it never ignored them, a candidate that
// yielded and got the lock back would yield again and again to a candidate that can look and ask but can't hold the
// lock.
func (p *preference) ignoreFor(lease time.Duration) time.Duration {
	if p.spurned {
		p.ignoring = min(max(2*p.ignoring, 10*lease), max(longestIgnore, 10*lease))
	}
	p.spurned = false
	return p.ignoring
}

// prefer asks a holder of lower priority, once in its term, to hand the lock over. Before that, the candidate's looks
// must have succeeded for three lease durations without a term of its own in between. If the reply to the request is
// lost, the candidate asks again.
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
