//go:build unix

package clientgo

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/network"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
	"github.com/spindle-lock/spindle/spindletest"
)

// This file runs electors as processes of their own, for what only a process can suffer. They report on the machine's
// one clock.

const short = 5 * time.Second // the lease

// report is what a child says.
type report struct {
	Kind string // leads, stopped, fenced, applied
	At   int64
}

// candidate is a child's orders, besides where Spanner is.
type candidate struct{ Database, Table string }

func runCandidate(args []string, _ <-chan string) error {
	var c candidate
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	db, err := spanner.NewClientWithConfig(context.Background(), c.Database, spanner.ClientConfig{DisableNativeMetrics: true}, spindle.ClientOptions(short)...)
	if err != nil {
		return err
	}
	defer db.Close()
	lock, err := New(db, c.Table, "mylock", spindle.WithLease(short), spindle.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	say := func(kind string, at time.Time) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(report{Kind: kind, At: at.UnixNano()})
	}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { work(ctx, lock, say) },
			OnStoppedLeading: func() {},
		}))
		if err != nil {
			return err
		}
		elector.Run(ctx)
	}
	limit, cancel := context.WithTimeout(context.Background(), 5*short)
	defer cancel()
	return lock.Stop(limit)
}

// work reports from when to when it saw itself lead: from after the first look that said so to before the last. Time in
// which the process does not run is not in it.
func work(ctx context.Context, lock *Lock, say func(string, time.Time)) {
	token, last := TokenOf(ctx), time.Time{}
	for ctx.Err() == nil {
		now := time.Now()
		if !last.IsZero() && now.Sub(last) > short/10 { // it did not run: what is due comes first
			say("stopped", last)
			last = time.Time{}
			time.Sleep(short / 20)
			continue
		}
		if ctx.Err() == nil {
			if last.IsZero() {
				say("leads", time.Now())
			}
			last = now
		}
		time.Sleep(time.Millisecond)
	}
	if !last.IsZero() {
		say("stopped", last)
	}
	limit, cancel := context.WithTimeout(context.Background(), 10*short)
	defer cancel()
	kind := "applied"
	if _, err := lock.Spindle().Apply(limit, token, nil); errors.Is(err, spindle.ErrFenced) {
		kind = "fenced"
	} else if err != nil {
		kind = err.Error()
	}
	say(kind, time.Now())
}

// cluster is the processes.
type cluster struct {
	t  *testing.T
	db *spindletest.Database

	mu      sync.Mutex
	all     []*process
	changed chan struct{} // closed and replaced at each report
}

type process struct {
	*subprocess.Child
	link    *network.Link
	reports []report
}

func (c *cluster) start() *process {
	c.t.Helper()
	link, err := network.NewLink(c.db.Host)
	require.NoError(c.t, err)
	c.t.Cleanup(link.Close)
	arg, err := json.Marshal(candidate{c.db.Path, c.db.Table})
	require.NoError(c.t, err)
	p := &process{link: link}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Child, err = subprocess.Command{Args: []string{string(arg)}, Stderr: os.Stderr,
		Env:  append(c.db.Env(), "SPANNER_EMULATOR_HOST="+link.Addr()),
		Line: func(line string) { c.hear(p, line) }}.Start()
	require.NoError(c.t, err)
	c.t.Cleanup(p.Kill)
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

// await waits until found is not nil for a process.
func (c *cluster) await(what string, found func(*process) bool) *process {
	c.t.Helper()
	timeout := time.After(time.Minute)
	for {
		c.mu.Lock()
		i, changed := slices.IndexFunc(c.all, found), c.changed
		c.mu.Unlock()
		if i >= 0 {
			return c.all[i]
		}
		select {
		case <-changed:
		case <-timeout:
			require.FailNow(c.t, "waited in vain", "for %s", what)
		}
	}
}

// leads reports whether the last that p said is that it leads.
func (p *process) leads() bool {
	return len(p.reports) > 0 && p.reports[len(p.reports)-1].Kind == "leads"
}

// leader waits for a leader that is none of these.
func (c *cluster) leader(not ...*process) *process {
	c.t.Helper()
	return c.await("a leader", func(p *process) bool { return !slices.Contains(not, p) && p.leads() })
}

// says waits for p to report that, after then.
func (c *cluster) says(p *process, kind string, then time.Time) {
	c.t.Helper()
	c.await(kind, func(q *process) bool {
		return q == p && slices.ContainsFunc(p.reports, func(r report) bool { return r.Kind == kind && r.At > then.UnixNano() })
	})
}

// requireOneLeader fails if two were seen to lead at one instant. A killed process led until its end at the longest.
func (c *cluster) requireOneLeader(killed map[*process]time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type span struct {
		by       *process
		from, to int64
	}
	var spans []span
	for _, p := range c.all {
		from := int64(0)
		for _, r := range p.reports {
			if r.Kind == "leads" {
				from = r.At
			} else if r.Kind == "stopped" {
				spans = append(spans, span{p, from, max(from, r.At)})
				from = 0
			}
		}
		if from != 0 {
			spans = append(spans, span{p, from, killed[p].UnixNano()})
		}
	}
	require.GreaterOrEqual(c.t, len(spans), 5)
	for i, a := range spans {
		for _, b := range spans[:i] {
			if a.by != b.by && a.from < b.to && b.from < a.to {
				c.t.Errorf("two led: process %d from %d to %d, process %d from %d to %d", a.by.Pid(), a.from, a.to, b.by.Pid(), b.from, b.to)
			}
		}
	}
}

// If the leader is killed, paused, cut off or stopped, another leads after the lease, or at once, and never two.
func TestProcessesThatAreKilledPausedAndCutOff(t *testing.T) {
	t.Parallel()
	c := &cluster{t: t, db: spindletest.New(t), changed: make(chan struct{})}
	killed := map[*process]time.Time{}
	for range 3 {
		c.start()
	}
	took := func(what string, since time.Time) { t.Logf("%s: another leads after %v", what, time.Since(since)) }

	first, at := c.leader(), time.Now()
	killed[first] = at
	first.Kill()
	second := c.leader(first)
	took("SIGKILL", at)

	at = time.Now()
	require.NoError(t, second.Signal(syscall.SIGSTOP))
	third := c.leader(first, second)
	took("SIGSTOP", at)
	at = time.Now()
	require.NoError(t, second.Signal(syscall.SIGCONT))
	c.says(second, "fenced", at) // its work was told, and can't write any more

	at = time.Now()
	third.link.BlackHole()
	second = c.leader(first, third)
	took("cut off", at)
	c.says(third, "stopped", at)
	third.link.Mend()

	at = time.Now()
	require.NoError(t, second.Signal(syscall.SIGTERM))
	last := c.leader(first, second)
	took("SIGTERM", at)
	<-second.Done()

	killed[last] = time.Now()
	for _, p := range c.all {
		p.Kill()
	}
	c.requireOneLeader(killed)
}
