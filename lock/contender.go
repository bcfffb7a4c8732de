package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// contender competes for the locks of a mutex, a set or a semaphore.
type contender struct {
	what    string // its description in errors
	config  options.Config
	err     error // what is wrong with the arguments; every method returns it if it is set
	table   table.Table
	spanner table.Spanner // for fences
	about   telemetry.Scope

	newer *sync.Once // guards the warning that a newer version holds a lock

	where func() string // the database and the table
	key   string        // identifies the queue within one table
}

// newContender checks the arguments. After it has applied the options, it calls check, which can refuse them.
func newContender(db *spanner.Client, tableName, what string, names []string, opts []Option, check func(*options.Config)) contender {
	c := options.New(opts)
	c.Check(db, tableName, names...)
	if check != nil {
		check(&c)
	}
	s := contender{what: what, config: c, newer: new(sync.Once)}
	s.table, s.spanner = s.config.Table(db, tableName)
	s.about = c.Telemetry(tableName, names...)
	if err := c.Err(); err != nil {
		s.err = s.wrap("new", err)
		return s
	}
	database := db.DatabaseName
	if c.Store != nil || c.Process != "" {
		database = func() string { return c.Process }
	}
	s.where = func() string { return database() + " " + table.Canonical(tableName) }
	s.key = fmt.Sprintf("%q", names)
	return s
}

// queue returns the key of the contender's queue in this process.
func (s *contender) queue() string { return s.where() + " " + s.key }

func (s *contender) wrap(step string, err error) error {
	if hint := table.FaultOf(err).Hint; hint != "" && !errors.Is(err, fence.ErrFenced) {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	if step == "lock" { // the package's name says it
		return fmt.Errorf("lock: %s: %w", s.what, err)
	}
	return fmt.Errorf("lock: %s: %s: %w", step, s.what, err)
}

// fence returns the fence for names, which are held under token.
func (s *contender) fence(token spindle.Token, names ...string) fence.Fence {
	return fence.Fence{Table: s.spanner, Names: names, Token: table.Token(token), About: s.about,
		Wrap: func(err error) error { return s.wrap("fence", err) }}
}

// fence returns the fence for names. If h still holds them when the fence finds that they are gone, its term ends.
func (h *held) fence(names ...string) fence.Fence {
	f := h.contender.fence(h.token(), names...)
	f.Gone = func() { h.term.Supersede(h.config.Clock.Now()) }
	return f
}

// candidate returns a candidate for names, whose polls also read the queues of l. The candidate uses free rows, because these
// locks change hands often.
func (s *contender) candidate(l *line, names ...string) elect.Candidate {
	c := s.config.Candidate(l.table, names...)
	c.Queue, c.FreeRows, c.LeaseRecord.Kind = l, true, table.Mutex
	return c
}

// acquire polls the locks until it can claim the ones that choose selects. choose must not select locks while other
// waiters are ahead in the queue.
//
// If try is set, acquire returns no term if the locks are held or other waiters are ahead. It polls again only after a
// lost claim, because Spanner may have aborted the claim although no process holds the locks. If try is not set, a
// waiter that can't claim its locks puts a ticket into the queues, unless another goroutine is already waiting there
// for this process.
func (s *contender) acquire(ctx context.Context, c *elect.Candidate, choose elect.Choose, try bool, w *waiting) (*elect.Term, error) {
	for ctx.Err() == nil {
		step := s.attempt(ctx, c, choose, s.maxPause(), w.watch)
		if step.Term != nil {
			return step.Term, nil
		}
		byNewer := s.heldByNewer(step.Err)
		if step.Seen != nil || byNewer {
			w.seen, w.before = step.Seen, w.line.place()
		}
		if step.Err == nil {
			w.patience.Passed("poll")
		}
		switch {
		case isOver(ctx): // no failure of Spanner; the error is made below
		case byNewer && try:
			w.last = step.Err
			return nil, nil
		case step.Err != nil && (try || permanent(step.Err) || w.givesUp(step)):
			return nil, step.Err
		case try && !step.Lost:
			return nil, nil
		case !step.CoolingDown:
			w.last = step.Err
		}
		pause := step.Pause
		if step.Seen != nil && step.Err == nil && !try {
			if err := s.attend(ctx, w); err != nil && ctx.Err() == nil {
				if w.patience.Ends("ticket", err) {
					return nil, err
				}
				w.last = err
			}
			pause = min(pause, w.line.pause(step.Seen))
		}
		elect.Sleep(ctx, s.config.Clock, pause)
	}
	return nil, w.ended(ctx, s.config.Clock)
}

// isOver reports whether ctx has ended or its deadline has passed. On a busy machine, a request fails because of the
// deadline before ctx's own timer fires.
func isOver(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && time.Until(deadline) <= 0
}

// attend keeps the process's place in the queues. It does nothing unless the waiter is first among the process's
// goroutines. If attend fails, the waiter tries again after the next poll.
func (s *contender) attend(ctx context.Context, w *waiting) error {
	if w.inLine != nil && !w.inLine() {
		return nil
	}
	if err := w.line.attend(ctx, w.queue.id(s.config.Clock), w.seen); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	w.patience.Passed("ticket")
	return nil
}

// inOrder wraps choose so that it selects nothing while other waiters are ahead of this one in the queues.
func inOrder(l *line, choose elect.Choose) elect.Choose {
	return func(seen []elect.LockView) elect.Decision {
		d := choose(seen)
		if d.Claims() != nil {
			wait, passed := l.turn(seen)
			if wait > 0 {
				return elect.Wait(wait)
			}
			return d.As(l.urgency()).And(passed...)
		}
		return d
	}
}

// heldByNewer reports whether err means that a newer version of this program wrote the rows of a lock. Such a lock
// counts as held. In a rolling update, the older processes therefore wait until it is released. The first such error is
// logged.
func (s *contender) heldByNewer(err error) bool {
	if !errors.Is(err, table.ErrNewer) || permanent(err) {
		return false
	}
	s.newer.Do(func() {
		s.config.Log.Warn("waiting for a lock that is held by a newer version of this program; update this program", "table", s.about.Table, "err", err)
	})
	return true
}

// attempt polls the locks once, and may claim them. It returns early if ctx ends. If the claim in progress then
// succeeds, the locks are released in the background.
func (s *contender) attempt(ctx context.Context, c *elect.Candidate, choose elect.Choose, maxPause time.Duration, w *telemetry.Watch) elect.Step {
	taken := make(chan elect.Step, 1)
	go func() {
		step := c.Try(ctx, choose, maxPause)
		w.Tried(step)
		taken <- step
	}()
	select {
	case step := <-taken:
		return step
	case <-ctx.Done():
		go func() {
			if step := <-taken; step.Term != nil {
				_ = s.release(context.WithoutCancel(ctx), step.Term, table.Due{})
			}
		}()
		return elect.Step{Err: ctx.Err()}
	}
}

// maxPause returns the longest pause between two polls.
func (s *contender) maxPause() time.Duration {
	return cmp.Or(s.config.Look, min(s.config.Lease/10, time.Second))
}
