//go:build unix

package spindle_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
	"github.com/spindle-lock/spindle/spindletest"
)

// This file runs candidates as separate processes, to test faults that only a process can have. The test binary starts
// itself again, and exchanges lines of JSON with its children.

func TestMain(m *testing.M) {
	subprocess.Main(runCandidate)
	os.Exit(m.Run())
}

// candidate has a child's orders.
type candidate struct {
	Database, Table, Name, ID string
	Lease                     time.Duration
	Reclaim, Handover         bool
}

// report is a line that a child prints. Its times are from the clock that all processes share, in nanoseconds.
type report struct {
	Kind  string // held, unheld, resumed, applied, fenced, failed, stopped
	At    int64
	Has   bool
	Token spindle.Token
	Err   string
}

// command is an order to a child to write to the register, with or without the fence.
type command struct {
	Fenced bool
	Token  spindle.Token
	Value  int64
}

const registerDDL = `CREATE TABLE register (id INT64 NOT NULL, value INT64) PRIMARY KEY (id)`

func runCandidate(args []string, orders <-chan string) error {
	if args[0] == "panic" {
		return leadAndPanic()
	}
	var c candidate
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	db, err := spanner.NewClientWithConfig(context.Background(), c.Database, spanner.ClientConfig{DisableNativeMetrics: true})
	if err != nil {
		return err
	}
	defer db.Close()
	opts := []spindle.Option{spindle.WithLease(c.Lease), spindle.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))}
	if c.ID != "" {
		opts = append(opts, spindle.WithID(c.ID))
	}
	if c.Reclaim {
		opts = append(opts, spindle.WithReclaim())
	}
	if c.Handover {
		opts = append(opts, spindle.WithHandover())
	}
	lock := spindle.New(db, c.Table, c.Name, opts...)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	done := make(chan error, 1)
	if err := lock.Run(ctx, done); err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(r report) { mu.Lock(); defer mu.Unlock(); _ = out.Encode(r) }
	go obey(orders, lock, db, say)
	watch(lock, done, say)
	return nil
}

// watch reports every change in the result of HasLock, until done.
func watch(lock *spindle.Lock, done <-chan error, say func(report)) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var was bool
	var lastTrue, last int64
	say(report{Kind: "started", At: time.Now().UnixNano()})
	for {
		before := time.Now().UnixNano()
		has, token := lock.HasLock()
		after := time.Now().UnixNano()
		if last != 0 && after-last > int64(500*time.Millisecond) { // stopped since the last round, perhaps within this one
			has, token = lock.HasLock()
			after = time.Now().UnixNano()
			say(report{Kind: "resumed", At: after, Has: has, Token: token})
		}
		switch {
		case has && !was:
			say(report{Kind: "held", At: after, Token: token})
		case !has && was:
			say(report{Kind: "unheld", At: lastTrue})
		}
		if has {
			lastTrue = before
		}
		was, last = has, after
		select {
		case <-tick.C:
		case err := <-done:
			r := report{Kind: "stopped", At: lastTrue}
			if err != nil {
				r.Err = err.Error()
			}
			say(r)
			return
		}
	}
}

func obey(orders <-chan string, lock *spindle.Lock, db *spanner.Client, say func(report)) {
	for order := range orders {
		var c command
		if err := json.Unmarshal([]byte(order), &c); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		write := []*spanner.Mutation{spanner.InsertOrUpdate("register", []string{"id", "value"}, []any{1, c.Value})}
		var err error
		if c.Fenced {
			_, err = lock.Apply(ctx, c.Token, write)
		} else {
			_, err = db.Apply(ctx, write)
		}
		cancel()
		switch {
		case err == nil:
			say(report{Kind: "applied", At: time.Now().UnixNano()})
		case errors.Is(err, spindle.ErrFenced):
			say(report{Kind: "fenced", At: time.Now().UnixNano(), Err: err.Error()})
		default:
			say(report{Kind: "failed", At: time.Now().UnixNano(), Err: err.Error()})
		}
	}
}

// cluster is a set of processes that are the candidates for one lock.
type cluster struct {
	tb   testing.TB
	db   *spindletest.Database
	base candidate

	mu      sync.Mutex
	all     []*process
	changed chan struct{} // closed and replaced at each report
}

type process struct {
	*subprocess.Child
	reports []report // guarded by the cluster's mu
	ended   int64    // when it was killed, or 0
}

func newCluster(tb testing.TB, db *spindletest.Database, base candidate) *cluster {
	base.Database, base.Table = db.Path, db.Table
	c := &cluster{tb: tb, db: db, base: base, changed: make(chan struct{})}
	tb.Cleanup(c.close)
	return c
}

// start starts another candidate. env is added to its environment, and overrides it.
func (c *cluster) start(env ...string) *process {
	c.tb.Helper()
	arg, err := json.Marshal(c.base)
	require.NoError(c.tb, err)
	p := &process{}
	child := subprocess.Command{Args: []string{string(arg)}, Env: append(c.db.Env(), env...), Line: func(line string) { c.hear(p, line) }}
	if testing.Verbose() {
		child.Stderr = os.Stderr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Child, err = child.Start()
	require.NoError(c.tb, err)
	c.all = append(c.all, p)
	return p
}

func (c *cluster) hear(p *process, line string) {
	var r report
	if json.Unmarshal([]byte(line), &r) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.reports = append(p.reports, r)
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits for the first report since the given time, from any process, that match accepts.
func (c *cluster) await(limit time.Duration, match func(*process, report) bool) (*process, report) {
	c.tb.Helper()
	timeout := time.After(limit)
	for {
		c.mu.Lock()
		for _, p := range c.all {
			for _, r := range p.reports {
				if match(p, r) {
					c.mu.Unlock()
					return p, r
				}
			}
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-timeout:
			require.FailNow(c.tb, "waited in vain", "for %v", limit)
		}
	}
}

// elected waits until a process gets the lock after the given time.
func (c *cluster) elected(after time.Time) (*process, report) {
	c.tb.Helper()
	return c.await(time.Minute, func(_ *process, r report) bool { return r.Kind == "held" && r.At > after.UnixNano() })
}

// says waits for p to make a report of the given kind after the given time.
func (c *cluster) says(p *process, kind string, after time.Time) report {
	c.tb.Helper()
	_, r := c.await(time.Minute, func(q *process, r report) bool { return q == p && r.Kind == kind && r.At > after.UnixNano() })
	return r
}

func (c *cluster) do(p *process, cmd command) report {
	c.tb.Helper()
	line, err := json.Marshal(cmd)
	require.NoError(c.tb, err)
	start := time.Now()
	require.NoError(c.tb, p.Send(string(line)))
	_, r := c.await(time.Minute, func(q *process, r report) bool {
		return q == p && r.At > start.UnixNano() && (r.Kind == "applied" || r.Kind == "fenced" || r.Kind == "failed")
	})
	return r
}

// kill kills p as kill -9 does, and returns the time just before that.
func (c *cluster) kill(p *process) time.Time {
	c.tb.Helper()
	now := time.Now()
	p.Kill()
	c.mu.Lock()
	p.ended = now.UnixNano()
	c.mu.Unlock()
	return now
}

func (c *cluster) signal(p *process, s os.Signal) time.Time {
	c.tb.Helper()
	now := time.Now()
	require.NoError(c.tb, p.Signal(s))
	return now
}

func (c *cluster) close() {
	for _, p := range c.all {
		p.Kill()
	}
	c.requireOneHolder()
}

// requireOneHolder fails if two processes learned that they held the lock at the same time. Each interval begins at the
// end of the first call that returned true, and ends at the start of the last one. It therefore lies within the time
// for which the lock was held, so that no overlap is an artifact of the measurement.
func (c *cluster) requireOneHolder() {
	type span struct {
		from, to int64
		p        *process
	}
	var spans []span
	for _, p := range c.all {
		from := int64(0)
		for _, r := range p.reports {
			switch r.Kind {
			case "held":
				from = r.At
			case "unheld", "stopped":
				if from != 0 {
					spans = append(spans, span{from, max(from, r.At), p})
				}
				from = 0
			}
		}
		if from != 0 && p.ended != 0 {
			spans = append(spans, span{from, p.ended, p})
		}
	}
	for i, a := range spans {
		for _, b := range spans[:i] {
			if a.p != b.p && a.from < b.to && b.from < a.to {
				c.tb.Errorf("two holders: process %d from %d to %d, process %d from %d to %d",
					a.p.Pid(), a.from, a.to, b.p.Pid(), b.from, b.to)
			}
		}
	}
}

func (r report) time() time.Time { return time.Unix(0, r.At) }
