package group

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// lanes is the number of commits that claim or reconcile partitions at the same time.
const lanes = 4

// executor runs a term's requests in separate goroutines, so that a request that hangs does not block the term's loop.
// The loop handles the outcome of each request. If the term has ended by then, the outcome is dropped.
type executor struct {
	ctx     context.Context
	cancel  context.CancelFunc
	clock   elect.Clock
	lease   time.Duration
	results chan func()
	running *sync.WaitGroup // the requests of all terms

	queue   []*commit // waiting for a lane
	under   int       // commits in progress
	single  bool      // one commit at a time, with pauses, because nothing succeeds
	pause   elect.Backoff
	paused  alarm // until the next commit, if single is set
	crowded alarm // until commits may run in parallel again, after one was aborted by a conflict
}

// commit is a set of partitions that are claimed or reconciled together. If that fails, each half of the set is tried
// separately, so that one partition does not block the others.
type commit struct {
	entries []*entry
	rows    []table.Observation // one for each entry, as the last poll read it
	ready   alarm               // the earliest time to start it
	send    func(ctx context.Context, c *commit) (result, error)
	done    func(c *commit, r result, err error)
}

// result is the outcome of a successful commit.
type result struct {
	sent      elect.Instant
	token     table.Token
	confirmed []string
}

func newExecutor(ctx context.Context, m *member) *executor {
	x := &executor{clock: m.config.Clock, lease: m.config.Lease, results: make(chan func()), running: &m.requests}
	x.ctx, x.cancel = context.WithCancel(ctx)
	x.pause.Max = x.lease / 3
	return x
}

// do runs a step in its own goroutine, for at most limit, and then calls then in the loop.
func (x *executor) do(limit time.Duration, step func(context.Context) error, then func(error)) {
	x.running.Add(1)
	go func() {
		defer x.running.Done()
		ctx, cancel := context.WithTimeout(x.ctx, limit)
		err := step(ctx)
		cancel()
		select {
		case x.results <- func() { then(err) }:
		case <-x.ctx.Done():
		}
	}()
}

// commitLimit is the time limit for one commit. It is shorter than the time limit for a poll, so that there is time to
// try the two halves of a failed commit.
func (x *executor) commitLimit() time.Duration {
	return min(max(x.lease/5, time.Second), x.lease/2, elect.Attempt(x.lease))
}

// add queues a commit. Smaller commits go first, because they are halves of failed ones.
func (x *executor) add(c *commit) {
	i, _ := slices.BinarySearchFunc(x.queue, len(c.entries)+1, func(q *commit, n int) int { return len(q.entries) - n })
	x.queue = slices.Insert(x.queue, i, c)
}

// dispatch starts queued commits until all lanes are busy. Before it starts a commit, it calls keep for each entry, and
// drops the entries that no longer have to be claimed or reconciled.
func (x *executor) dispatch(keep func(c *commit, e *entry) bool) {
	for x.under < x.width() {
		i := slices.IndexFunc(x.queue, func(c *commit) bool { return c.ready.wait(x.clock) == 0 })
		if i < 0 {
			return
		}
		c := x.queue[i]
		x.queue = slices.Delete(x.queue, i, i+1)
		if c.reduce(func(e *entry) bool { return keep(c, e) }); len(c.entries) > 0 {
			x.start(c)
		}
	}
}

func (x *executor) start(c *commit) {
	var r result
	x.under++
	x.do(2*x.commitLimit(), func(ctx context.Context) (err error) {
		r, err = c.send(ctx, c)
		return err
	}, func(err error) {
		x.under--
		if x.single && err != nil {
			x.paused.set(x.clock, x.pause.Pause(x.clock))
		}
		c.done(c, r, err)
	})
}

// width returns the number of commits that may run at the same time.
func (x *executor) width() int {
	switch {
	case x.single && x.paused.wait(x.clock) > 0:
		return 0
	case x.single, x.crowded.wait(x.clock) > 0:
		return 1
	}
	return lanes
}

// left returns the time until a waiting commit can be started.
func (x *executor) left() time.Duration {
	if len(x.queue) == 0 || x.under > 0 && x.under >= x.width() {
		return never
	}
	soonest := never
	for _, c := range x.queue {
		soonest = min(soonest, c.ready.wait(x.clock))
	}
	if x.single {
		soonest = max(soonest, x.paused.wait(x.clock))
	}
	return soonest
}

// slow turns on or off the mode in which commits run one at a time, with pauses.
func (x *executor) slow(single bool) {
	if x.single = single; !single {
		x.pause.Reset()
	}
}

// oneAtATime makes commits run one at a time for the next half of a lease period. It is called when Spanner has aborted a commit
// because of a conflict.
func (x *executor) oneAtATime() { x.crowded.set(x.clock, x.lease/2) }

// split queues the two halves of a failed commit.
func (x *executor) split(c *commit, after time.Duration) {
	half := (len(c.entries) + 1) / 2
	for _, part := range [][2]int{{0, half}, {half, len(c.entries)}} {
		h := *c
		h.entries, h.rows = slices.Clone(c.entries[part[0]:part[1]]), slices.Clone(c.rows[part[0]:part[1]])
		h.ready.set(x.clock, after)
		x.add(&h)
	}
}

// reduce drops the entries for which keep returns false.
func (c *commit) reduce(keep func(*entry) bool) {
	entries, rows := c.entries[:0], c.rows[:0]
	for i, e := range c.entries {
		if keep(e) {
			entries, rows = append(entries, e), append(rows, c.rows[i])
		}
	}
	c.entries, c.rows = entries, rows
}

// insist runs a step, and retries it for up to lease/20 while Spanner aborts it. Aborts are common, because other
// members claim partitions at the same time. A retry is faster than another poll. It is also safe, because each attempt
// checks that the rows have not changed since the last poll.
func insist(ctx context.Context, clock elect.Clock, lease, limit time.Duration, step func(context.Context) error) error {
	began := clock.Now()
	for {
		attempt, cancel := context.WithTimeout(ctx, limit)
		err := step(attempt)
		cancel()
		if !errors.Is(err, table.ErrAborted) || clock.Now().Since(began) >= lease/20 || ctx.Err() != nil {
			return err
		}
		elect.Sleep(ctx, clock, clock.Random(lease/200+1))
	}
}
