package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// requests is the part of a term that sends requests to Spanner. Each request runs in its own goroutine, so that a
// hanging request does not block the term's loop. The loop handles the reply to each request. A reply that arrives
// after the end of the term is dropped.
type requests struct {
	ctx     context.Context
	cancel  context.CancelFunc
	config  *options.Config
	table   table.Table
	own     table.LeaseRef // the member's lock and token
	replies chan func()
	running *sync.WaitGroup // the requests of all terms
}

func newRequests(ctx context.Context, m *member, own table.LeaseRef) *requests {
	r := &requests{config: &m.g.config, table: m.table, own: own, replies: make(chan func()), running: &m.running}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// do runs a step in its own goroutine, for at most the time limit. The loop then passes the reply to the callback.
func do[T any](r *requests, limit time.Duration, step func(context.Context) (T, error), then func(T, error)) {
	r.running.Add(1)
	go func() {
		defer r.running.Done()
		ctx, cancel := context.WithTimeout(r.ctx, limit)
		reply, err := step(ctx)
		cancel()
		select {
		case r.replies <- func() { then(reply, err) }:
		case <-r.ctx.Done():
		}
	}()
}

// limit returns the time limit for a request. Some requests have a shorter limit.
func (r *requests) limit() time.Duration { return elect.Attempt(r.config.Lease) }

// commitLimit returns the time limit for each request of a commit. For most leases, it is shorter than the limit of
// other requests, so that there is time to try the two halves of a failed commit.
func (r *requests) commitLimit() time.Duration {
	lease := r.config.Lease
	return min(max(lease/5, time.Second), lease/2, elect.Attempt(lease))
}

// result is the outcome of a successful commit.
type result struct {
	sent      elect.Instant
	token     table.Token
	confirmed []string
}

// commit claims and confirms the partitions of one commit, or frees them. It runs outside the loop's goroutine.
func (r *requests) commit(ctx context.Context, c *commit) (reply result, err error) {
	if c.frees {
		if err = r.table.ReconcilePartitions(ctx, r.own, c.rows...); err != nil {
			err = fmt.Errorf("reconcile: %w", err)
		}
		return result{}, err
	}
	defer r.config.Count()()
	var names []string
	reply.sent = r.config.Clock.Now()
	err = r.insist(ctx, func(ctx context.Context) (err error) {
		reply.token, names, err = r.table.ClaimPartitions(ctx, r.own, c.rows...)
		return err
	})
	if err != nil {
		return result{}, fmt.Errorf("claim: %w", err)
	}
	err = r.insist(ctx, func(ctx context.Context) (err error) {
		reply.confirmed, err = r.table.ConfirmPartitions(ctx, r.own, table.LeaseRecord{Lease: r.config.Lease}, reply.token, names...)
		return err
	})
	if err != nil {
		return result{}, fmt.Errorf("confirm: %w", err)
	}
	return reply, nil
}

// repeats returns for how long a commit is retried if Spanner aborts it because other members claim partitions at the
// same time.
func (r *requests) repeats() time.Duration { return min(r.config.Lease/20, elect.LongestPause) }

// insist runs a step. If Spanner aborts it, insist retries it for the time that repeats returns. A retry is faster than
// a poll. It is safe, because each attempt reads the rows again, and skips those that have changed since the poll or,
// when it confirms, since the claim.
func (r *requests) insist(ctx context.Context, step func(context.Context) error) error {
	clock, lease := r.config.Clock, r.config.Lease
	began := clock.Now()
	for {
		attempt, cancel := context.WithTimeout(ctx, r.commitLimit())
		err := step(attempt)
		cancel()
		if !errors.Is(err, table.ErrAborted) || clock.Now().Since(began) >= r.repeats() || ctx.Err() != nil {
			return err
		}
		if elect.Sleep(ctx, clock, clock.Random(min(lease/200, time.Second)+1)); ctx.Err() != nil {
			return err
		}
	}
}
