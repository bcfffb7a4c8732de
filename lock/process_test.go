//go:build unix

package lock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// This file runs users of locks as separate processes.

func TestMain(m *testing.M) {
	subprocess.Main(runWork)
	os.Exit(m.Run())
}

// work is the instructions for a child process.
type work struct {
	Kind            string // count, turns or give up
	Database, Table string
	Lease           time.Duration
	Goroutines      int
	For             time.Duration
}

// report is the report of a child process. Its times are those of the machine's single clock, in nanoseconds.
type report struct {
	Kind string // try, done, fenced; got, gave; end
	At   int64
}

func runWork(args []string, _ <-chan string) error {
	var w work
	if err := json.Unmarshal([]byte(args[0]), &w); err != nil {
		return err
	}
	db, err := spanner.NewClientWithConfig(context.Background(), w.Database, spanner.ClientConfig{DisableNativeMetrics: true})
	if err != nil {
		return err
	}
	defer db.Close()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(kind string) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(report{kind, time.Now().UnixNano()})
	}
	if w.Kind == "give up" {
		giveUp(db, w)
	}
	var all sync.WaitGroup
	end := time.Now().Add(w.For)
	for range w.Goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(end) {
				if w.Kind == "count" {
					count(db, w, say)
				} else {
					takeTurn(db, w, say)
				}
			}
		}()
	}
	all.Wait()
	say("end")
	return nil
}

// giveUp waits for the mutex a and for a Once of its name until a time-out, and ends the process at once.
func giveUp(db *spanner.Client, w work) {
	ctx, cancel := context.WithTimeout(context.Background(), w.For)
	defer cancel()
	options := []lock.Option{quiet, spindle.WithLease(w.Lease)}
	err := lock.New(db, w.Table, "a", options...).Lock(ctx)
	again, cancelAgain := context.WithTimeout(context.Background(), w.For)
	defer cancelAgain()
	_, once := lock.NewOnce(db, w.Table, "a", options...).Do(again, lock.KeyOf("1"), func(context.Context, lock.Run) error { return nil })
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(once, context.DeadlineExceeded) {
		fmt.Println(`{"Kind":"gave"}`)
	}
	os.Exit(0)
}

// count increments a counter that is protected only by the mutex and its fence.
func count(db *spanner.Client, w work, say func(string)) {
	ctx, cancel := context.WithTimeout(context.Background(), w.For)
	defer cancel()
	m := lock.New(db, w.Table, "counter", quiet, spindle.WithLease(w.Lease))
	if m.Lock(ctx) != nil {
		return
	}
	defer func() { _ = m.Unlock(ctx) }()
	fence := m.Fence()
	row, err := db.Single().ReadRow(ctx, "counter", spanner.Key{1}, []string{"n"})
	if err != nil {
		return
	}
	var n spanner.NullInt64
	if row.Columns(&n) != nil {
		return
	}
	say("try")
	// This must not be an at-least-once commit, because an increment that is applied again later would set the counter
	// back.
	_, err = db.Apply(ctx, []*spanner.Mutation{fence, spanner.Update("counter", []string{"id", "n"}, []any{1, n.Int64 + 1})})
	if err == nil {
		say("done")
	} else if spanner.ErrCode(err).String() == "NotFound" {
		say("fenced")
	}
}

// takeTurn holds the lock for a short time, and then lets the other process have it.
func takeTurn(db *spanner.Client, w work, say func(string)) {
	ctx := context.Background()
	m := lock.New(db, w.Table, "turns", quiet, spindle.WithLease(w.Lease))
	if m.Lock(ctx) != nil {
		return
	}
	say("got")
	time.Sleep(50*time.Millisecond + rand.N(100*time.Millisecond))
	say("gave")
	_ = m.Unlock(ctx)
	time.Sleep(10 * time.Millisecond)
}

type child struct {
	*subprocess.Child
	mu      sync.Mutex
	reports []report
}

func startWork(tb testing.TB, db *spindletest.Database, w work) *child {
	w.Database, w.Table = db.Path, db.Table
	arg, err := json.Marshal(w)
	require.NoError(tb, err)
	c := &child{}
	c.Child, err = subprocess.Command{Args: []string{string(arg)}, Env: db.Env(), Stderr: os.Stderr, Line: c.hear}.Start()
	require.NoError(tb, err)
	tb.Cleanup(c.Kill)
	return c
}

func (c *child) hear(line string) {
	var r report
	if json.Unmarshal([]byte(line), &r) == nil {
		c.mu.Lock()
		c.reports = append(c.reports, r)
		c.mu.Unlock()
	}
}

func (c *child) count(kind string) (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.reports {
		if r.Kind == kind {
			n++
		}
	}
	return n
}

func TestNoIncrementIsLostToKillsAndPauses(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Insert("counter", []string{"id", "n"}, []any{1, 0})})
		require.NoError(t, err)
		const during = 8 * time.Second
		w := work{Kind: "count", Lease: time.Second, Goroutines: 10, For: during}
		var children []*child
		for range 5 {
			children = append(children, startWork(t, db, w))
		}
		start := time.Now()
		time.Sleep(during / 4)
		for i := 0; time.Since(start) < during*3/4; i++ {
			victim := children[i%len(children)]
			if i%2 == 0 {
				victim.Kill()
				w.For = during - time.Since(start)
				children = append(children, startWork(t, db, w))
				time.Sleep(300 * time.Millisecond)
				continue
			}
			_ = victim.Signal(syscall.SIGSTOP)
			time.Sleep(3 * w.Lease / 2)
			_ = victim.Signal(syscall.SIGCONT)
		}
		var tried, done, fenced int64
		for _, c := range children {
			<-c.Done()
			tried, done, fenced = tried+c.count("try"), done+c.count("done"), fenced+c.count("fenced")
		}
		row, err := db.Client.Single().ReadRow(t.Context(), "counter", spanner.Key{1}, []string{"n"})
		require.NoError(t, err)
		var n spanner.NullInt64
		require.NoError(t, row.Columns(&n))
		t.Logf("%d tried, %d done, %d fenced, counter %d", tried, done, fenced, n.Int64)
		assert.GreaterOrEqual(t, n.Int64, done, "an increment was lost")
		assert.LessOrEqual(t, n.Int64, tried-fenced, "an increment was counted twice")
		assert.Greater(t, done, int64(3))
	}, spindletest.Private()) // its thousands of commits would make the shared emulator slow
}

// A program that exits as soon as its wait has timed out leaves no ticket.
func TestAProgramThatGivesUpLeavesNoTicket(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		holder := lock.New(db.Client, db.Table, "a", quiet, spindle.WithLease(10*time.Second))
		require.NoError(t, holder.Lock(t.Context()))
		tickets, left := spanner.KeyRange{Start: spanner.Key{"!wait/"}, End: spanner.Key{"!wait0"}}, 1
		for round := 0; left > 0 && round < 10; round++ { // on a busy machine, a deletion may take longer than Lock may
			_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete(db.Table, tickets)})
			require.NoError(t, err)
			for range 6 {
				c := startWork(t, db, work{Kind: "give up", Lease: 10 * time.Second, For: 500 * time.Millisecond})
				<-c.Done()
				require.EqualValues(t, 1, c.count("gave"))
			}
			left = 0
			require.NoError(t, db.Client.Single().Read(t.Context(), db.Table, tickets, []string{"name"}).
				Do(func(*spanner.Row) error { left++; return nil }))
		}
		assert.Zero(t, left)
		require.NoError(t, holder.Unlock(t.Context()))
	}, spindletest.Private())
}

// BenchmarkHandover measures the time from just before Unlock in one process to the return of Lock in the other.
func BenchmarkHandover(b *testing.B) {
	db := spindletest.New(b)
	w := work{Kind: "turns", Lease: 10 * time.Second, Goroutines: 1, For: time.Duration(b.N) * 150 * time.Millisecond}
	var children [2]*child
	for i := range children {
		children[i] = startWork(b, db, w)
	}
	type turn struct {
		report
		by int
	}
	var turns []turn
	for i, c := range children {
		<-c.Done()
		for _, r := range c.reports {
			turns = append(turns, turn{r, i})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return int(a.At - b.At) })
	var took []float64
	for i := 1; i < len(turns); i++ {
		if a, b := turns[i-1], turns[i]; a.Kind == "gave" && b.Kind == "got" && a.by != b.by {
			took = append(took, float64(b.At-a.At)/1e6)
		}
	}
	if len(took) == 0 {
		b.Skip("too short for a hand-over: -benchtime 100x")
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "median-ms")
	b.ReportMetric(took[len(took)-1], "worst-ms")
	b.ReportMetric(float64(len(took)), "handovers")
	b.ReportMetric(0, "ns/op")
}
