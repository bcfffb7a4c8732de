package spindle

import (
	"context"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

// view is what the loop knows of the lock. A view never changes: the loop shows a newer one.
type view struct {
	term     *elect.Term        // this Lock's own, or nil
	events   *loop.Inbox[event] // of the term
	leaving  bool               // announced
	canceled elect.Instant      // when the work's context was canceled, or zero
	other    table.Observation  // another holder; no lease record: none is known
	looked   elect.Instant      // when the look that showed the other holder began
	next     chan struct{}      // closed once there is a newer view
}

// show publishes v. Only the loop calls it.
func (l *Lock) show(v view) {
	v.next = make(chan struct{})
	if before := l.view.Swap(&v); before != nil {
		close(before.next)
	}
}

// known returns the leader of v, and how long ago it was known to lead.
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

// Seen returns the leader that Run saw last, which is this Lock itself if it leads, and how long ago that was. It
// reports false if Run knows of no leader: the lock is free, or Run has not looked yet or has ended. Heartbeat is zero
// if the leader is this Lock. Seen is local: no RPC, no mutex, no allocation.
//
// The age counts from when a request was sent. While Spanner can be reached, it stays below a poll interval (WithPoll)
// and two round trips; if this Lock leads, below a heartbeat interval with its twentieth of jitter and two round trips.
// An age beyond the leader's lease means that Run has learned nothing of the lock since: another may lead by now.
func (l *Lock) Seen() (leader Leader, age time.Duration, ok bool) {
	return l.known(l.view.Load())
}

// Wait blocks until Run knows of a leader, as Seen does, with an age below the leader's lease, and returns it. The
// leader may be this Lock. Wait makes no RPC, and may be called before Run. Its error wraps ctx's.
func (l *Lock) Wait(ctx context.Context) (Leader, error) {
	var found Leader
	err := l.wait(ctx, "no leader is known", func(v *view) bool {
		leader, age, ok := l.known(v)
		found = leader
		return ok && age < leader.Lease
	})
	return found, err
}

// WaitElected blocks until this Lock leads, as HasLock says, and returns its token. It makes no RPC, and may be called
// before Run. Its error wraps ctx's.
func (l *Lock) WaitElected(ctx context.Context) (Token, error) {
	var token Token
	err := l.wait(ctx, "another leads, or nobody", func(*view) (has bool) {
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
				why = "Run was not called, or has ended"
			}
			return l.wrap("wait", fmt.Errorf("%s: %w", why, ended(ctx)))
		}
	}
}

// ended returns ctx's error, with the cause if that says more.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}
