//go:build unix

package spindle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
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
	Database, Table string
	Lease           time.Duration
}

// report is a line that a child prints.
type report struct {
	Kind  string // started, held, resumed, applied, fenced, failed, stopped
	At    int64  // by the clock that all processes share, in nanoseconds
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
	lock := spindle.New(db, c.Table, "mylock", spindle.WithLease(c.Lease), spindle.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	done := make(chan error, 1)
	if err := lock.Run(ctx, done); err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(kind string, r report, err error) {
		mu.Lock()
		defer mu.Unlock()
		if r.Kind, r.At = kind, time.Now().UnixNano(); err != nil {
			r.Err = err.Error()
		}
		_ = json.NewEncoder(os.Stdout).Encode(r)
	}
	go obey(orders, lock, db, say)
	watch(lock, done, say)
	return nil
}

// watch reports when the candidate gets the lock, and what HasLock says first after the process was stopped, until done.
func watch(lock *spindle.Lock, done <-chan error, say func(string, report, error)) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	say("started", report{}, nil)
	was, last := false, time.Now()
	for {
		has, token := lock.HasLock()
		if time.Since(last) > time.Second/2 { // stopped since the last round, perhaps within this one
			has, token = lock.HasLock()
			say("resumed", report{Has: has, Token: token}, nil)
		}
		if has && !was {
			say("held", report{Has: true, Token: token}, nil)
		}
		was, last = has, time.Now()
		select {
		case <-tick.C:
		case err := <-done:
			say("stopped", report{}, err)
			return
		}
	}
}

func obey(orders <-chan string, lock *spindle.Lock, db *spanner.Client, say func(string, report, error)) {
	for order := range orders {
		var c command
		if err := json.Unmarshal([]byte(order), &c); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		var err error
		if c.Fenced {
			_, err = lock.Apply(ctx, c.Token, write(c.Value))
		} else {
			_, err = db.Apply(ctx, write(c.Value))
		}
		cancel()
		switch {
		case err == nil:
			say("applied", report{}, nil)
		case errors.Is(err, spindle.ErrFenced):
			say("fenced", report{}, err)
		default:
			say("failed", report{}, err)
		}
	}
}

// cluster is a set of processes that are the candidates for one lock.
type cluster struct {
	tb    testing.TB
	db    *spindletest.Database
	lease time.Duration

	mu      sync.Mutex
	all     []*process
	changed chan struct{} // closed and replaced at each report
}

type process struct {
	*subprocess.Child
	reports []report // guarded by the cluster's mu
}

func newCluster(tb testing.TB, db *spindletest.Database, lease time.Duration) *cluster {
	c := &cluster{tb: tb, db: db, lease: lease, changed: make(chan struct{})}
	tb.Cleanup(c.kill)
	return c
}

func (c *cluster) kill() {
	for _, p := range c.all {
		p.Kill()
	}
}

// start starts another candidate.
func (c *cluster) start() *process {
	c.tb.Helper()
	arg, err := json.Marshal(candidate{Database: c.db.Path, Table: c.db.Table, Lease: c.lease})
	require.NoError(c.tb, err)
	p := &process{}
	child := subprocess.Command{Args: []string{string(arg)}, Env: c.db.Env(), Line: func(line string) { c.hear(p, line) }}
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

// await waits for the first report of one of these kinds after the given time, from p, or from any process if p is nil.
func (c *cluster) await(p *process, after time.Time, kinds ...string) (*process, report) {
	c.tb.Helper()
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		for _, q := range c.all {
			for _, r := range q.reports {
				if (p == nil || p == q) && r.At > after.UnixNano() && slices.Contains(kinds, r.Kind) {
					c.mu.Unlock()
					return q, r
				}
			}
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-timeout:
			require.FailNow(c.tb, "waited in vain", "for %v", kinds)
		}
	}
}

// elected waits until a process gets the lock after the given time.
func (c *cluster) elected(after time.Time) (*process, report) {
	c.tb.Helper()
	return c.await(nil, after, "held")
}

// says waits for p to make a report of the given kind after the given time.
func (c *cluster) says(p *process, kind string, after time.Time) report {
	c.tb.Helper()
	_, r := c.await(p, after, kind)
	return r
}

// do returns what came of an order.
func (c *cluster) do(p *process, cmd command) string {
	c.tb.Helper()
	line, err := json.Marshal(cmd)
	require.NoError(c.tb, err)
	start := time.Now()
	require.NoError(c.tb, p.Send(string(line)))
	_, r := c.await(p, start, "applied", "fenced", "failed")
	return r.Kind
}

// signal sends a signal to p, and returns the time just before that.
func (c *cluster) signal(p *process, s os.Signal) time.Time {
	c.tb.Helper()
	now := time.Now()
	require.NoError(c.tb, p.Signal(s))
	return now
}

// slow is the value of a panic that takes a while to print. In the meantime, the other goroutines go on.
type slow struct{ released <-chan struct{} }

// Error is called by the runtime once the deferred functions of the panicking goroutine have run.
func (s slow) Error() string {
	select {
	case <-s.released:
		fmt.Println("released")
	case <-time.After(time.Second):
		fmt.Println("held")
	}
	os.Exit(0)
	return ""
}

// leadAndPanic is the code of a process whose leader function panics.
func leadAndPanic() error {
	link, released := &memstore.Link{Store: &memstore.Store{}}, make(chan struct{})
	link.After(func(step string) {
		if step == "release" {
			close(released)
		}
	})
	l := spindle.New(nil, "locktable", "mylock", options.Option(func(c *options.Config) { c.Store = link }),
		spindle.WithLeader(func(context.Context, spindle.Term) { panic(slow{released}) }))
	return l.RunAndWait(context.Background())
}

// While a process dies of a panic, other goroutines of its work may still run. So the panic is not taken for a return,
// and the lock is not released before its lease expires.
func TestALeaderFunctionThatPanicsReleasesNothing(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 1)
	child, err := subprocess.Command{Args: []string{"panic"}, Line: func(line string) { lines <- line }}.Start()
	require.NoError(t, err)
	defer child.Kill()
	assert.Equal(t, "held", <-lines)
}
