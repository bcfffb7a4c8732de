// Package moments delivers every event at every moment of a machine's life, in virtual time. A moment is just before one of
// the machine's requests is sent, or just after the request took effect and before the reply arrives. A test sees its
// machine only through the machine's table, clock and API, so it survives any change inside.
package moments

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

var (
	flagCase  = flag.String("case", "", "run one case of TestXAtEachMoment, as a failure prints it")
	flagPairs = flag.Int("pairs", 0, "how many pairs of events to draw for each machine; 0: the default")
)

// Lease is the lease of the machines and of their rivals.
const Lease = 10 * time.Second

// Machine is what a test is about.
type Machine struct {
	Live   func(*World)            // one life through the public API, from the first request to the last goroutine
	Events map[string]func(*World) // what can happen to it, besides the faults of its requests
	After  func(*World)            // what must hold once it has ended and the faults are over
}

// World is one life of a machine, its table, and the processes beside it.
type World struct {
	*testing.T
	Store   *memstore.Store
	Link    *memstore.Link // the machine's connection to the table
	Clock   *fleet.Clock   // the machine's clock
	Remains *fleet.Remains
	Ctx     context.Context // the machine's, which the event "ctx ends" ends
	End     context.CancelFunc
	Others  sync.WaitGroup // the processes beside it
	Values  any            // what the machine's own functions keep

	mu      sync.Mutex
	count   int
	steps   []string       // what the moments are, for the failures
	due     map[int]string // the events to be delivered, by the number of the moment
	events  map[string]func(*World)
	broken  time.Time // when an operator released the lock of a living holder, which notices it at its next heartbeat that is answered
	current string
}

// ErrUnavailable is the answer to a request that is refused.
var ErrUnavailable = status.Error(codes.Unavailable, "the request is refused")

// Every fault ends by itself. What it hits is one request: "lost" and "refused" before it takes effect, "unanswered" and
// "late" after it has.
var faults = []string{"the request is lost", "the request is refused", "the reply is lost", "the reply is late"}

// AtEachMoment runs the machine once without events, and then with each event at each moment, and with some pairs.
func AtEachMoment(t *testing.T, m Machine) {
	all := append(slices.Sorted(maps.Keys(m.Events)), faults...)
	quiet := m.run(t, "quiet", nil)
	require.NotEmpty(t, quiet)
	cases := map[string]map[int]string{}
	add := func(due map[int]string) {
		var name []string
		for _, at := range slices.Sorted(maps.Keys(due)) {
			name = append(name, fmt.Sprintf("%d %s", at, due[at]))
		}
		cases[strings.Join(name, ", ")] = due
	}
	for i := range quiet {
		if i >= 4 && i+4 < len(quiet) && quiet[i] == quiet[i-4] && quiet[i] == quiet[i+4] && rand.N(20) > 0 {
			continue // one of a row of polls
		}
		for _, e := range all {
			add(map[int]string{i: e})
		}
	}
	pairs := *flagPairs
	if pairs == 0 {
		pairs = len(cases) / 3
	}
	for range pairs {
		first := rand.N(len(quiet))
		add(map[int]string{first: all[rand.N(len(all))], first + 1 + rand.N(6): all[rand.N(len(all))]})
	}
	if *flagCase != "" {
		due := map[int]string{}
		for _, e := range strings.Split(*flagCase, ", ") {
			at, what, _ := strings.Cut(e, " ")
			var n int
			_, err := fmt.Sscan(at, &n)
			require.NoError(t, err)
			due[n] = what
		}
		cases = map[string]map[int]string{*flagCase: due}
	}
	for _, name := range fleet.Part(slices.Sorted(maps.Keys(cases))...) {
		m.run(t, name, cases[name])
		if t.Failed() {
			t.Fatalf("to repeat this: -run '%s$' -case '%s'; the moments: %s", t.Name(), name, strings.Join(quiet, ", "))
		}
	}
	t.Logf("%d cases at %d moments", len(cases), len(quiet))
}

// run runs one life, and returns its moments.
func (m Machine) run(t *testing.T, name string, due map[int]string) []string {
	w := &World{T: t, due: due, events: m.Events, current: name}
	synctest.Test(t, func(t *testing.T) {
		w.T = t
		w.Store = &memstore.Store{}
		w.Link, w.Clock, w.Remains = &memstore.Link{Store: w.Store}, &fleet.Clock{}, fleet.NewRemains()
		w.Ctx, w.End = context.WithCancel(w.Remains.Ctx)
		before := time.Now()
		m.Live(w)
		w.End()
		w.Link.Mend()
		w.Until("its tickets are deleted", 4*Lease, func() bool { return len(w.tickets("machine")) == 0 })
		if m.After != nil {
			m.After(w)
		}
		w.Remains.Ctx.End()
		w.Others.Wait()
		time.Sleep(time.Hour) // what hangs ends
		if kept := w.Remains.Kept(t); len(kept) > 0 {
			w.Errorf("something is left: %v", kept)
		}
		if left := w.tickets(""); len(left) > 0 {
			w.Errorf("tickets are left: %v", left)
		}
		if took := time.Since(before); took > 2*time.Hour {
			w.Errorf("it took %v", took)
		}
	})
	return w.steps
}

// tickets returns the rows of the tickets of a process, or of all processes.
func (w *World) tickets(of string) (left []string) {
	for name, row := range w.Store.Rows() {
		if table.IsTicket(name) && strings.Contains(row.Writer, of) {
			left = append(left, name+" "+row.Writer)
		}
	}
	return left
}

// Errorf fails the test, and names the case.
func (w *World) Errorf(format string, args ...any) {
	w.Helper()
	w.T.Errorf(w.current+": "+format, args...)
}

// Table returns the machine's connection to the table, which delivers the events.
func (w *World) Table() table.Store { return table.Via(w.pass) }

// Options returns the options of the machine's locks.
func (w *World) Options() spindle.CommonOption {
	seam := options.Option(func(c *options.Config) { c.Store, c.Clock, c.Process = w.Table(), w.Clock, "machine" })
	return spindle.Options(w.Remains.Options(), seam, spindle.WithID("machine"), spindle.WithLease(Lease), spindle.WithLogger(slog.New(slog.DiscardHandler)))
}

// Beside returns the options of another, healthy process.
func (w *World) Beside(id string) spindle.CommonOption {
	seam := options.Option(func(c *options.Config) { c.Store, c.Clock, c.Process = w.Store, &fleet.Clock{}, id })
	return spindle.Options(seam, spindle.WithID(id), spindle.WithLease(Lease), spindle.WithLogger(slog.New(slog.DiscardHandler)))
}

// pass delivers events before a request is sent, and between its effect and its reply.
func (w *World) pass(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
	switch w.moment(step + " is sent") {
	case "the request is lost":
		<-ctx.Done()
		return memstore.ErrCut
	case "the request is refused":
		return ErrUnavailable
	}
	err := call(ctx, w.Link)
	switch w.moment(step + " is answered") {
	case "the request is lost", "the reply is lost", "the request is refused":
		<-ctx.Done()
		return memstore.ErrCut
	case "the reply is late":
		select {
		case <-time.After(Lease / 2):
		case <-ctx.Done():
			return memstore.ErrCut
		}
	}
	return err
}

// moment delivers the event that is due, and waits until it has had its effect. It returns a fault of the request.
func (w *World) moment(what string) (fault string) {
	w.mu.Lock()
	event := w.due[w.count]
	w.steps = append(w.steps, what)
	w.count++
	w.mu.Unlock()
	do := w.events[event]
	if do == nil {
		return event
	}
	go do(w)
	time.Sleep(time.Microsecond) // passes once every other goroutine waits
	return ""
}

// Until lets time pass until cond holds, at most for the limit.
func (w *World) Until(what string, limit time.Duration, cond func() bool) {
	w.Helper()
	for start := time.Now(); !cond(); time.Sleep(Lease / 200) {
		if time.Since(start) > limit {
			w.Errorf("%s: not within %v", what, limit)
			return
		}
	}
}

// Apart fails the test if two of the values hold the lock at the same time, from now until the returned function is
// called.
func (w *World) Apart(held ...func() bool) (stop func()) {
	return w.Always(func() error {
		n := 0
		for _, h := range held {
			if h() {
				n++
			}
		}
		w.mu.Lock()
		notices := time.Since(w.broken) < Lease
		w.mu.Unlock()
		if n > 1 && !notices {
			return fmt.Errorf("%d hold it", n)
		}
		return nil
	})
}

// Always fails the test if check returns an error at any time from now until the returned function is called.
func (w *World) Always(check func() error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w.Others.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(Lease / 500) {
			if err := check(); err != nil {
				w.Errorf("%v", err)
				return
			}
		}
	})
	return cancel
}

// cutOff cuts the machine off from the table for a while.
func cutOff(d time.Duration) func(*World) {
	return func(w *World) {
		w.Link.Cut()
		time.Sleep(d)
		w.Link.Mend()
	}
}

// Common are the events that can happen to every machine.
func Common(more map[string]func(*World)) map[string]func(*World) {
	all := map[string]func(*World){
		"ctx ends":                     func(w *World) { w.End() },
		"it is cut off for a while":    cutOff(Lease / 2),
		"it is cut off for two leases": cutOff(2 * Lease),
		"it was suspended":             func(w *World) { w.Clock.Wall.Add(int64(Lease)) },
		"it was suspended for a while": func(w *World) { w.Clock.Wall.Add(int64(Lease / 2)) },
		"its wall clock is set back":   func(w *World) { w.Clock.Wall.Add(-int64(Lease)) },
	}
	maps.Copy(all, more)
	return all
}

// Operator takes a lock from its holder, as spindle release does.
func Operator(name string) func(*World) {
	return func(w *World) {
		w.mu.Lock()
		w.broken = time.Now()
		w.mu.Unlock()
		tab := table.Table{Store: w.Store}
		if seen, err := tab.Observe(context.Background(), name); err == nil && seen[0].Token != 0 {
			_ = tab.Break(context.Background(), seen[0].Token, name)
		}
	}
}

// Requested asks the holder of a lock for a handover.
func Requested(name string) func(*World) {
	return func(w *World) {
		tab := table.Table{Store: w.Store}
		if seen, err := tab.Observe(context.Background(), name); err == nil && seen[0].Token != 0 {
			_ = tab.Ask(context.Background(), table.ByOperator, name, seen[0].Token)
		}
	}
}
