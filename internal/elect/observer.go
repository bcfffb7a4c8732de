package elect

import (
	"context"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// observer reads the rows that tell a candidate the state of its locks, and remembers what they contained.
type observer struct {
	seen map[string]*lockHistory // nil if nothing was seen
}

// observe reads the lock rows. It also reads the lease rows if it has not read the locks before, if a lock row is
// missing or was missing at the last poll, or if the lock rows do not show who the holder is. Each read is a snapshot.
// If a later read fails, the candidate remembers the earlier results, which can only make it more cautious.
func (b *observer) observe(ctx context.Context, on table.Table, c *Candidate) ([]table.Observation, error) {
	if b.seen == nil || slices.ContainsFunc(c.Names, b.missed) { // the wall clock only limits the range of keys to read
		return on.LookAtLeases(ctx, c.Clock.Now().Time(), c.Names...)
	}
	observed, err := b.glance(ctx, on, c)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(observed, b.unfamiliar) {
		b.learn(observed, c)
		if observed, err = on.Inspect(ctx, observed...); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(observed, b.incomplete) {
		b.learn(observed, c)
		return on.LookAtLeases(ctx, observed[0].At, c.Names...)
	}
	return observed, nil
}

// glance reads the lock rows. If the candidate or others in its queue use free rows to claim, glance also reads the
// rows that such a claim needs. Only those rows contain the time of the release.
func (b *observer) glance(ctx context.Context, on table.Table, c *Candidate) ([]table.Observation, error) {
	if !c.FreeRows && c.Queue == nil {
		return on.Observe(ctx, c.Names...)
	}
	since := make([]table.Token, len(c.Names))
	var at time.Time
	for i, name := range c.Names {
		h := b.history(name)
		since[i], at = h.token, h.at
	}
	return on.Follow(ctx, at, since, c.Names...)
}

// missed reports whether a lock had no row at the last poll.
func (b *observer) missed(name string) bool { return !b.history(name).absent.IsZero() }

// unfamiliar reports whether a lock has a holder whose lease record is not known.
func (b *observer) unfamiliar(o table.Observation) bool {
	return o.Confirmed() && o.LeaseRecord == nil && b.history(o.Name).leaseRecordOf(o.Token) == nil
}

// incomplete reports whether a lock has no row, or is held without a lease row. Orphan leases may then show the holder.
func (b *observer) incomplete(o table.Observation) bool { return !o.Exists || b.unfamiliar(o) }

func (b *observer) learn(observed []table.Observation, c *Candidate) {
	for _, o := range observed {
		if o.Exists { // a missing row is learned together with its orphan leases, which are read next
			b.history(o.Name).learn(o, c.rules(o.Name))
		}
	}
}

// forgetHolder forgets the previous holder of a lock that the candidate has claimed with the given lease.
func (b *observer) forgetHolder(name string, lease time.Duration) {
	h := b.history(name)
	*h = lockHistory{token: h.token, at: h.at, taken: true, pace: lease, last: h.last}
}

func (b *observer) history(name string) *lockHistory {
	h := b.seen[name]
	if h == nil {
		if b.seen == nil {
			b.seen = map[string]*lockHistory{}
		}
		h = &lockHistory{}
		b.seen[name] = h
	}
	return h
}
