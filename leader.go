package spindle

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Leader describes a term of a lock, as published by its holder.
type Leader struct {
	ID        string        // the holder's id
	Value     string        // the holder's value (WithValue)
	Token     Token         // the term's fencing token
	Heartbeat time.Time     // the holder's last heartbeat, by Spanner's clock
	Lease     time.Duration // the holder's lease
	Leaving   bool          // whether the holder has announced that it will give up the lock
}

// Leader reads the current leader from Spanner. It makes one RPC, or two if the leader has changed since the last call.
// The error wraps ErrNoLeader if the lock is free, if the lease has expired by Spanner's clock, or if a candidate has
// claimed the lock but not yet confirmed the claim. Leader returns early if ctx ends. It works even if Run was never
// called, and may be called from any goroutine.
func (l *Lock) Leader(ctx context.Context) (Leader, error) {
	if l.err != nil {
		return Leader{}, l.err
	}
	o, err := l.look(ctx)
	switch {
	case err != nil:
		return Leader{}, l.wrap("leader", err)
	case !leads(o):
		return Leader{}, l.wrap("leader", ErrNoLeader)
	}
	return leaderOf(o), nil
}

// look reads the lock row, and the lease row of the last known leader, in one snapshot. If the lock has a new leader,
// look reads again, this time with the new leader's lease row.
func (l *Lock) look(ctx context.Context) (table.Observation, error) {
	o := table.Observation{Name: l.name, Token: table.Token(l.leader.Load())}
	for {
		seen, err := l.table.Inspect(ctx, o)
		if err != nil {
			return o, err
		}
		if known := o.Token; seen[0].Token == known || !seen[0].Confirmed() {
			return seen[0], nil
		}
		o = seen[0]
		l.leader.Store(int64(o.Token))
	}
}

// leads reports whether the lock has a holder whose last heartbeat is less than one lease old.
func leads(o table.Observation) bool {
	return o.LeaseRecord != nil && o.At.Sub(o.Heartbeat) < o.LeaseRecord.Lease
}

func leaderOf(o table.Observation) Leader {
	return Leader{ID: o.Holder(), Value: o.LeaseRecord.Value, Token: Token(o.Token), Heartbeat: o.Heartbeat,
		Lease: o.LeaseRecord.Lease, Leaving: o.Leaving()}
}
