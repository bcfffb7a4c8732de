package spindle

import (
	"context"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

// view is the loop's knowledge of the lock. A view never changes; the loop replaces it with a newer one.
type view struct {
	term     *elect.Term        // this Lock's own term, or nil
	events   *loop.Inbox[event] // the inbox of the term
	leaving  bool               // whether the end of the term has been announced
	canceled elect.Instant      // when the work's context was canceled, or zero
	other    table.Observation  // another holder; without a lease record if none is known
	looked   elect.Instant      // when the look that showed the other holder began
	next     chan struct{}      // closed once there is a newer view
}

// show publishes v. It is called only by the loop.
func (l *Lock) show(v view) {
	v.next = make(chan struct{})
	if before := l.view.Swap(&v); before != nil {
		close(before.next)
	}
}

// known returns v's leader and the age of that knowledge.
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

// Seen returns the leader that Run has seen most recently, which is this Lock itself if it leads, and how long ago that
// was. It reports false if Run knows of no leader, because the lock is free or because Run has not looked yet or has
// ended. Heartbeat is zero if the leader is this Lock. Seen uses local state only: it makes no RPC, takes no mutex and
// allocates no memory.
//
// The age counts from the time at which the request was sent. While Spanner can be reached, it stays below one poll
// interval (WithPoll) plus two round trips. If this Lock leads, it stays below one heartbeat interval, including its
// jitter of a twentieth, plus two round trips. An age greater than the leader's lease means that Run has learned
// nothing about the lock for that long, and that another process may lead by now.
func (l *Lock) Seen() (leader Leader, age time.Duration, ok bool) {
	return l.known(l.view.Load())
}

// Wait blocks until Seen reports a leader with an age below that leader's lease, and returns the leader, which may be
// this Lock. Wait makes no RPC, and may be called before Run. If ctx ends first, the error wraps ctx's error.
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
			return l.wrap("wait", fmt.Errorf("%s: %w", why, ended(ctx)))
		}
	}
}

// ended returns ctx's error, together with its cause if the cause says more.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}
