package spindle

import (
	"context"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
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

// view is what the loop knows about the lock. A view never changes; the loop replaces it with a newer one.
type view struct {
	term     *elect.Term        // this Lock's own term, or nil
	events   *loop.Inbox[event] // the inbox of the term
	leaving  bool               // whether the end of the term has been announced
	canceled elect.Instant      // when the work's context was canceled, or zero
	other    table.Observation  // another holder; without a lease record if none is known
	looked   elect.Instant      // when the poll that showed the other holder began
	next     chan struct{}      // closed once there is a newer view
}

// show publishes v. It is called only by the loop.
func (l *Lock) show(v view) {
	v.next = make(chan struct{})
	if before := l.view.Swap(&v); before != nil {
		close(before.next)
	}
}

// known returns the leader that v shows, and how old that information is.
func (l *Lock) known(v *view) (Leader, time.Duration, bool) {
	switch {
	case v.term != nil && v.term.Held():
		c := &l.config
		return Leader{ID: c.ID, Value: c.Value, Token: Token(v.term.Token()), Lease: c.Lease, Leaving: v.leaving}, v.term.Age(), true
	case v.other.LeaseRecord != nil:
		return leaderOf(v.other), l.config.Clock.Now().Since(v.looked), true
	}
	return Leader{}, 0, false
}

// Seen returns the last leader that Run has seen, and how long ago that was. The leader may be this Lock, in which case
// Heartbeat is zero. If Run knows of no leader, ok is false, for example because the lock is free, Run has not polled
// it yet, or Run has ended. Seen uses local state only: it makes no RPC, takes no mutex and allocates no memory.
//
// The age counts from the time at which the poll or heartbeat was sent. While Spanner can be reached, the age stays
// below one poll interval (WithPoll; with a Notifier, 0.9 leases) plus two round trips. A Notifier's messages do not
// reset it. If this Lock leads, the age stays below 1.05 heartbeat intervals plus two round trips. If the age exceeds
// the leader's lease, Run has learned nothing about the lock for that long, and another process may lead by now.
func (l *Lock) Seen() (leader Leader, age time.Duration, ok bool) {
	return l.known(l.view.Load())
}

// Wait blocks until Seen returns a leader and an age that is less than that leader's lease. Wait returns the leader,
// which may be this Lock. It makes no RPC, and may be called before Run. If ctx ends first, the error wraps ctx's
// error.
func (l *Lock) Wait(ctx context.Context) (Leader, error) {
	var found Leader
	err := l.wait(ctx, "no leader is known", func(v *view) bool {
		leader, age, ok := l.known(v)
		found = leader
		return ok && age < leader.Lease
	})
	return found, err
}

// WaitElected blocks until HasLock returns true, and returns the token of the term. It makes no RPC, and may be called
// before Run. If ctx ends first, the error wraps ctx's error.
func (l *Lock) WaitElected(ctx context.Context) (Token, error) {
	var token Token
	err := l.wait(ctx, "this process does not lead", func(*view) (has bool) {
		has, token = l.HasLock()
		return has
	})
	return token, err
}

func (l *Lock) wait(ctx context.Context, why string, enough func(*view) bool) error {
	if l.err != nil {
		return l.err
	}
	for {
		v := l.view.Load()
		if enough(v) {
			return nil
		}
		select {
		case <-v.next:
		case <-ctx.Done():
			if !l.runs.Going() {
				why = "Run was not called or has ended"
			}
			return l.wrap("wait", fmt.Errorf("%s: %w", why, table.Ended(ctx)))
		}
	}
}

// Leader reads the current leader from Spanner. It usually makes one RPC, and one more if the leader has changed since
// the last call. The error wraps ErrNoLeader if the lock is free, if the lease has expired by Spanner's clock, or if a
// candidate has claimed the lock but not yet confirmed the claim. Leader returns early if ctx ends. It works even if
// Run was never called, and may be called from any goroutine. A Notifier does not affect Leader.
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
