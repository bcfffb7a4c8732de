//go:build unix

package group_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
	"github.com/spindle-lock/spindle/spindletest"
)

func TestMain(m *testing.M) {
	subprocess.Main(runMember)
	os.Exit(m.Run())
}

// member has a child's orders.
type member struct {
	Database, Table, Name string
	Partitions            int
	Lease                 time.Duration
}

// turn is a child's report that its work on a partition begins or ends. The time is from the clock that all processes
// share, in nanoseconds.
type turn struct {
	Begins    bool
	Partition string
	At        int64
}

func runMember(args []string, _ <-chan string) error {
	var m member
	if err := json.Unmarshal([]byte(args[0]), &m); err != nil {
		return err
	}
	db, err := spanner.NewClientWithConfig(context.Background(), m.Database, spanner.ClientConfig{DisableNativeMetrics: true})
	if err != nil {
		return err
	}
	defer db.Close()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(begins bool, p group.Partition) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(turn{begins, p.Name(), time.Now().UnixNano()})
	}
	g := group.New(db, m.Table, m.Name, group.Numbered(m.Partitions), spindle.WithLease(m.Lease), spindle.WithHandover(),
		spindle.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		group.WithWork(func(ctx context.Context, p group.Partition) error {
			say(true, p)
			<-ctx.Done()
			say(false, p)
			return nil
		}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	done := make(chan error, 1)
	if err := g.Run(ctx, done); err != nil {
		return err
	}
	return <-done
}

// fleet is a group of processes.
type fleet struct {
	tb   testing.TB
	db   *spindletest.Database
	base member

	mu      sync.Mutex
	changed chan struct{}
	owner   map[string]*process
	free    map[string]int64 // the time since which each partition has had no work
	gaps    []float64        // the times for which partitions were without work, in leases
	moved   int
	clashes []string
	unheard map[unheard]int64 // when work in other processes began
}

type process struct {
	*subprocess.Child
	has int
}

func newFleet(tb testing.TB, partitions int, lease time.Duration) *fleet {
	db := spindletest.New(tb)
	return &fleet{tb: tb, db: db, base: member{db.Path, db.Table, "orders", partitions, lease}, changed: make(chan struct{}),
		owner: map[string]*process{}, free: map[string]int64{}, unheard: map[unheard]int64{}}
}

func (f *fleet) start() *process {
	f.tb.Helper()
	arg, err := json.Marshal(f.base)
	require.NoError(f.tb, err)
	p := &process{}
	stderr := io.Discard
	if testing.Verbose() {
		stderr = os.Stderr
	}
	child := subprocess.Command{Args: []string{string(arg)}, Env: f.db.Env(), Stderr: stderr, Line: func(line string) { f.hear(p, line) }}
	p.Child, err = child.Start()
	require.NoError(f.tb, err)
	f.tb.Cleanup(p.Kill)
	return p
}

func (f *fleet) hear(p *process, line string) {
	var t turn
	if json.Unmarshal([]byte(line), &t) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.Begins {
		f.begins(p, t)
	} else {
		f.ends(p, t)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// begins takes in that work begins. This report can arrive before the report that the last work ended, if that comes
// through a different pipe. Only the times in the two reports show whether both processes worked at the same time.
func (f *fleet) begins(p *process, t turn) {
	if last := f.owner[t.Partition]; last != nil {
		last.has--
		f.unheard[unheard{last, t.Partition}] = t.At
	}
	f.owner[t.Partition] = p
	p.has++
	f.moved++
	if since, was := f.free[t.Partition]; was {
		f.gap(since, t.At)
	}
	delete(f.free, t.Partition)
}

func (f *fleet) ends(p *process, t turn) {
	if f.owner[t.Partition] == p {
		delete(f.owner, t.Partition)
		p.has--
		f.free[t.Partition] = t.At
		return
	}
	next, was := f.unheard[unheard{p, t.Partition}]
	if !was {
		return
	}
	delete(f.unheard, unheard{p, t.Partition})
	if t.At > next {
		f.clashes = append(f.clashes, t.Partition)
	}
	f.gap(t.At, next)
}

func (f *fleet) gap(from, to int64) { f.gaps = append(f.gaps, float64(to-from)/float64(f.base.Lease)) }

// An unheard is the missing report of the end of work on a partition, after another process has begun work on it.
type unheard struct {
	by        *process
	partition string
}

// kill kills p as kill -9 does. Its partitions count as having no work from the instant before.
func (f *fleet) kill(p *process) {
	at := time.Now().UnixNano()
	p.Kill()
	f.mu.Lock()
	defer f.mu.Unlock()
	for partition, owner := range f.owner {
		if owner == p {
			delete(f.owner, partition)
			f.free[partition] = at
		}
	}
	p.has = 0
	maps.DeleteFunc(f.unheard, func(u unheard, _ int64) bool { return u.by == p })
}

// spread waits until the processes share all partitions evenly.
func (f *fleet) spread(limit time.Duration, ps ...*process) {
	f.tb.Helper()
	late := time.After(limit)
	for {
		f.mu.Lock()
		sum, even, changed := 0, len(f.unheard) == 0, f.changed
		for _, p := range ps {
			sum += p.has
			even = even && p.has >= f.base.Partitions/len(ps) && p.has <= (f.base.Partitions+len(ps)-1)/len(ps)
		}
		said := fmt.Sprint(sum, " partitions are worked on, of ", f.base.Partitions, "; ends that were not heard: ", len(f.unheard))
		f.mu.Unlock()
		if even && sum == f.base.Partitions {
			require.Empty(f.tb, f.clashes, "two processes worked on one partition")
			return
		}
		select {
		case <-changed:
		case <-late:
			require.FailNow(f.tb, "no even spread", said)
		}
	}
}

// since returns the gaps since the last call, in leases, and the number of partitions on which a process has begun to
// work.
func (f *fleet) since() (gaps []float64, moved int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gaps, moved = f.gaps, f.moved
	f.gaps, f.moved = nil, 0
	return gaps, moved
}
