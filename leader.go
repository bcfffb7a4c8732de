package spindle

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Leader describes a term of a lock, as published by its holder.
type Leader struct {
	ID        string        // the holder's id
	Value     string        // the value that it published with WithValue
	Token     Token         // the term's fencing token
	Heartbeat time.Time     // its last heartbeat, by Spanner's clock
	Lease     time.Duration // the lease from its lease record
	Leaving   bool          // whether it has announced that it will give up the lock
}

// Leader reads which process holds the lock now. It makes one RPC, or two if the leader has changed since the last
// call. The error wraps ErrNoLeader if the lock is free, if the lease has expired by Spanner's own clock, or if a
// candidate has claimed the lock but has not confirmed the claim yet. Leader does not require Run, returns no later
// than the end of ctx, and may be called from any goroutine.
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

// look reads the lock row and the last known leader's lease row in one snapshot. If the lock has a new leader, it looks
// again.
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
