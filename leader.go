package spindle

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Leader describes a term of a lock, as its holder published it.
type Leader struct {
	ID        string        // the holder's id
	Value     string        // what it published with WithValue
	Token     Token         // the term's fencing token
	Heartbeat time.Time     // its last heartbeat, by Spanner's clock
	Lease     time.Duration // the lease it promised to keep
}

// Leader reads who holds the lock now, in two RPCs. It returns an error that errors.Is(err,
// ErrNoLeader) where the lock is free, expired by Spanner's own clock, or claimed by somebody who is
// not confirmed yet. It does not need Run, blocks until ctx ends at the longest, and may be called
// from any goroutine.
func (l *Lock) Leader(ctx context.Context) (Leader, error) {
	if l.err != nil {
		return Leader{}, l.err
	}
	seen, err := l.table.Observe(ctx, l.name)
	if err != nil {
		return Leader{}, l.wrap("leader", err)
	}
	o := seen[0]
	if !o.Held() {
		return Leader{}, l.wrap("leader", ErrNoLeader)
	}
	promises, err := l.table.Promises(ctx, o)
	if err != nil {
		return Leader{}, l.wrap("leader", err)
	}
	p, ok := promises[l.name]
	if !ok || o.At.Sub(o.Heartbeat) >= p.Lease {
		return Leader{}, l.wrap("leader", ErrNoLeader)
	}
	return leaderOf(o, p), nil
}

func leaderOf(o table.Observation, p table.Promise) Leader {
	return Leader{ID: o.Writer, Value: p.Value, Token: Token(o.Token), Heartbeat: o.Heartbeat, Lease: p.Lease}
}
