package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// stand is what is needed to stand for locks: the same for a mutex, a set and a semaphore.
type stand struct {
	what   string // for errors
	config options.Config
	err    error // what is wrong with the arguments; nothing works then
	table  table.Table
	fence  table.Spanner

	database func() string // where it stands
	key      string        // of the queue, within one database
}

func newStand(db *spanner.Client, tableName, what string, names []string, opts []spindle.Option) stand {
	c := options.New(opts)
	c.Check(db, tableName, names...)
	for option, given := range map[string]bool{"WithLeader": c.Lead != nil, "WithObserver": c.Observe != nil, "WithReclaim": c.Reclaim} {
		if given {
			c.Refuse("%s is for spindle.New: leave it out here", option)
		}
	}
	s := stand{what: what, config: c}
	s.table, s.fence = c.Table(db, tableName)
	if err := c.Err(); err != nil {
		s.err = s.wrap("new", err)
		return s
	}
	s.database = db.DatabaseName
	s.key = fmt.Sprintf("%s %q", tableName, names)
	return s
}

// queue is the key of the queue in this process.
func (s *stand) queue() string { return s.database() + " " + s.key }

func (s *stand) wrap(step string, err error) error {
	if elect.Nested(err) {
		err = fmt.Errorf("%w: its ctx is that of a transaction's function; give it a ctx from outside of it", err)
	}
	return fmt.Errorf("lock: %s: %s: %w", step, s.what, err)
}

// acquire looks until it can claim what is chosen. It makes one attempt if try is set, and returns no
// term if that finds the locks taken.
//
// Pauses are about an eighth of what has been waited: a lock that is given back is taken within a tenth
// of the time that its next holder has waited for it, and a long wait is not paid for with many reads.
func (s *stand) acquire(ctx context.Context, names []string, promise table.Promise, choose elect.Choose, try bool) (*elect.Term, error) {
	c := s.config.Candidate(s.table, names...)
	c.Promise = promise
	start := s.config.Clock.Now()
	var seen []elect.Sight
	var last error
	for ctx.Err() == nil {
		step := s.attempt(ctx, &c, choose, s.pause(start))
		if step.Term != nil {
			return step.Term, nil
		}
		if step.Seen != nil {
			seen = step.Seen
		}
		switch {
		case ctx.Err() != nil: // the error is that of ctx
		case step.Err != nil && (try || permanent(step.Err)):
			return nil, step.Err
		case try:
			return nil, nil
		default:
			last = step.Err
		}
		elect.Sleep(ctx, s.config.Clock, step.Pause)
	}
	return nil, waitedFor(ctx, s.config.Clock.Now().Since(start), seen, last)
}

// attempt returns when ctx ends, and then gives back in the background what it may still get.
func (s *stand) attempt(ctx context.Context, c *elect.Candidate, choose elect.Choose, patience time.Duration) elect.Step {
	taken := make(chan elect.Step, 1)
	go func() { taken <- c.Try(ctx, choose, patience) }()
	select {
	case step := <-taken:
		return step
	case <-ctx.Done():
		go func() {
			if step := <-taken; step.Term != nil {
				_ = step.Term.Release(context.WithoutCancel(ctx), errGivenBack)
			}
		}()
		return elect.Step{Err: ctx.Err()}
	}
}

// pause is the patience of one that has waited since start.
func (s *stand) pause(start elect.Instant) time.Duration {
	pause := min(max(s.config.Clock.Now().Since(start)/8, 2*time.Millisecond), s.config.Lease/10)
	return pause/2 + s.config.Clock.Random(pause)
}

// held is a term that keeps itself, until it is given back or lost.
type held struct {
	*stand
	term *elect.Term
	lost chan struct{}
	over context.Context    // ends when it is lost, or begins to be given back
	end  context.CancelFunc // of over
	kept chan struct{}      // closed when no heartbeat is sent any more
	left atomic.Bool        // it is given back
}

var errGivenBack = errors.New("given back")

func (s *stand) keep(t *elect.Term) *held {
	h := &held{stand: s, term: t, lost: make(chan struct{}), kept: make(chan struct{})}
	h.over, h.end = context.WithCancel(t.Context())
	context.AfterFunc(t.Context(), func() {
		if cause := context.Cause(t.Context()); !errors.Is(cause, errGivenBack) {
			s.config.Log.Info("lost", "what", s.what, "token", t.Token(), "reason", cause)
			close(h.lost)
		}
	})
	go func() {
		defer close(h.kept)
		if reason := t.Renew(s.config.Heartbeat, h.over.Done()); reason != nil {
			t.End(reason)
		}
	}()
	return h
}

func (h *held) token() spindle.Token {
	if h.left.Load() || !h.term.Held() {
		return 0
	}
	return spindle.Token(h.term.Token())
}

// leave is how giving back begins. It reports true once: to the one who is to give back.
func (h *held) leave() bool {
	if !h.left.CompareAndSwap(false, true) {
		return false
	}
	h.end()
	return true
}

// giveBack frees the locks that were left, within ctx. What fails is left to expire.
func (h *held) giveBack(ctx context.Context) error {
	select {
	case <-h.kept:
	case <-ctx.Done(): // a heartbeat hangs
		go func() { <-h.kept; h.term.End(errGivenBack) }()
		return fmt.Errorf("%w: left to expire", ctx.Err())
	}
	if !h.term.Held() {
		h.term.End(elect.ErrExpired) // unless it has ended for another reason
		return fmt.Errorf("%w: lost before: %w", ErrNotHeld, context.Cause(h.term.Context()))
	}
	err := h.term.Release(ctx, errGivenBack)
	if errors.Is(err, table.ErrSuperseded) {
		return fmt.Errorf("%w: lost before: %w", ErrNotHeld, err)
	}
	return err
}
