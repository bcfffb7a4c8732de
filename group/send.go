package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
)

// requests runs a term's requests in separate goroutines, so that a request that hangs does not block the term's loop.
// The loop handles the reply to each request. If the term has ended by then, the reply is dropped.
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

// do runs a step in its own goroutine, for at most limit, and then calls then in the loop.
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

// limit is the time limit for a request that is neither a poll nor a claim.
func (r *requests) limit() time.Duration { return elect.Attempt(r.config.Lease) }

// wait calls then in the loop once done is closed, or after limit.
func (r *requests) wait(done <-chan struct{}, limit time.Duration, then func(error)) {
	do(r, limit, func(ctx context.Context) (struct{}, error) {
		select {
		case <-done:
			return struct{}{}, nil
		case <-ctx.Done():
			return struct{}{}, ctx.Err()
		}
	}, func(_ struct{}, err error) { then(err) })
}

// commitLimit is the time limit for one commit. It is shorter than the time limit for a poll, so that there is time to
// try the two halves of a failed commit.
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

// commit claims and confirms the partitions of one commit, or frees them. It does not run in the loop.
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

// insist runs a step, and retries it for up to lease/20 while Spanner aborts it, because other members claim partitions
// at the same time. A retry is faster than another poll, and checks again that the rows have not changed since the last
// one.
func (r *requests) insist(ctx context.Context, step func(context.Context) error) error {
	clock, lease := r.config.Clock, r.config.Lease
	began := clock.Now()
	for {
		attempt, cancel := context.WithTimeout(ctx, r.commitLimit())
		err := step(attempt)
		cancel()
		if !errors.Is(err, table.ErrAborted) || clock.Now().Since(began) >= lease/20 || ctx.Err() != nil {
			return err
		}
		elect.Sleep(ctx, clock, clock.Random(lease/200+1))
	}
}

// lanes is the number of commits that claim or reconcile partitions at the same time.
const lanes = 4

// commits holds the commits of a term that claim or reconcile partitions, and decides when they are sent.
type commits struct {
	send *requests
	done func(c *commit, r result, err error)

	queue   []*commit // waiting for a lane
	under   int       // commits in progress
	single  bool      // one commit at a time, with pauses, because nothing succeeds
	pause   elect.Backoff
	paused  alarm // until the next commit
	crowded alarm // until commits may run in parallel again, after one was aborted by a conflict
}

// commit is a set of partitions that are claimed or reconciled together. If that fails, each half of the set is tried
// separately, so that one partition does not block the others.
type commit struct {
	rows  []table.Observation // sorted by name, as the last poll read them
	frees bool                // it reconciles the partitions
	ready alarm               // the earliest time to start it
}

// entries returns the partitions of the commit.
func (c *commit) entries(v *share.Inventory) (entries []*share.Entry) {
	for _, o := range c.rows {
		entries = append(entries, v.Of(o.Name))
	}
	return entries
}

// add queues a commit. Smaller commits go first, because they are halves of failed ones.
func (x *commits) add(c *commit) {
	i, _ := slices.BinarySearchFunc(x.queue, len(c.rows)+1, func(q *commit, n int) int { return len(q.rows) - n })
	x.queue = slices.Insert(x.queue, i, c)
}

// dispatch starts queued commits until all lanes are busy. Before it starts a commit, it calls keep for each partition,
// and drops those that no longer have to be claimed or reconciled.
func (x *commits) dispatch(keep func(lock string) bool) {
	for x.under < x.width() {
		i := slices.IndexFunc(x.queue, func(c *commit) bool { return c.ready.wait(x.send.config.Clock) == 0 })
		if i < 0 {
			return
		}
		c := x.queue[i]
		x.queue = slices.Delete(x.queue, i, i+1)
		c.rows = slices.DeleteFunc(c.rows, func(o table.Observation) bool { return !keep(o.Name) })
		if len(c.rows) > 0 {
			x.start(c)
		}
	}
}

func (x *commits) start(c *commit) {
	x.under++
	do(x.send, 2*x.send.commitLimit(), func(ctx context.Context) (result, error) {
		return x.send.commit(ctx, c)
	}, func(r result, err error) {
		x.under--
		if x.single && err != nil {
			x.paused.set(x.send.config.Clock, x.pause.Pause(x.send.config.Clock))
		}
		x.done(c, r, err)
	})
}

// idle reports whether no commit is queued or in progress.
func (x *commits) idle() bool { return len(x.queue)+x.under == 0 }

// width returns the number of commits that may run at the same time.
func (x *commits) width() int {
	clock := x.send.config.Clock
	switch {
	case x.paused.wait(clock) > 0:
		return 0
	case x.single, x.crowded.wait(clock) > 0:
		return 1
	}
	return lanes
}

// left returns the time until a waiting commit can be started.
func (x *commits) left() time.Duration {
	if len(x.queue) == 0 || x.under > 0 && x.under >= x.width() {
		return never
	}
	clock, soonest := x.send.config.Clock, never
	for _, c := range x.queue {
		soonest = min(soonest, c.ready.wait(clock))
	}
	return max(soonest, x.paused.wait(clock))
}

// slow turns on or off the mode in which commits run one at a time, with pauses.
func (x *commits) slow(single bool) {
	if x.single = single; !single {
		x.paused.off()
		x.pause.Reset()
	}
}

// oneAtATime makes commits run one at a time for the next half of a lease period. It is called when Spanner has aborted a commit
// because of a conflict.
func (x *commits) oneAtATime() { x.crowded.set(x.send.config.Clock, x.send.config.Lease/2) }

// split queues the two halves of a failed commit.
func (x *commits) split(c *commit, after time.Duration) {
	half := (len(c.rows) + 1) / 2
	for _, rows := range [][]table.Observation{c.rows[:half], c.rows[half:]} {
		h := &commit{rows: slices.Clone(rows), frees: c.frees}
		h.ready.set(x.send.config.Clock, after)
		x.add(h)
	}
}
