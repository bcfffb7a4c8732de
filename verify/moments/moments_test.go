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

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

var (
	flagCase  = flag.String("case", "", "run one case, as a failure prints it")
	flagPairs = flag.Int("pairs", 0, "how many pairs of events to draw for each machine; 0: the default")
)

const lease = 10 * time.Second

// machine is what a test is about.
type machine struct {
	live   func(*world)            // one life through the public API, from the first request to the last goroutine
	events map[string]func(*world) // what can happen to it, besides the faults of its requests
	after  func(*world)            // what must hold once it has ended and the faults are over
}

// world is one life of a machine, its table, and the processes beside it.
type world struct {
	*testing.T
	store   *memstore.Store
	link    *memstore.Link // the machine's connection to the table
	clock   *fleet.Clock   // the machine's clock
	remains *fleet.Remains
	ctx     context.Context // the machine's, which the event "ctx ends" ends
	end     context.CancelFunc
	others  sync.WaitGroup // the processes beside it
	values  any            // what the machine's own functions keep

	mu      sync.Mutex
	count   int
	steps   []string       // what the moments are, for the failures
	due     map[int]string // the events to be delivered, by the number of the moment
	events  map[string]func(*world)
	broken  time.Time // when an operator released the lock of a living holder, which notices it at its next heartbeat that is answered
	current string
}

// Every fault ends by itself. What it hits is one request: "lost" and "refused" before it takes effect, "unanswered" and
// "late" after it has.
var faults = []string{"the request is lost", "the request is refused", "the reply is lost", "the reply is late"}

// atEachMoment runs the machine once without events, and then with each event at each moment, and with some pairs.
func atEachMoment(t *testing.T, m machine) {
	all := append(slices.Sorted(maps.Keys(m.events)), faults...)
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
			t.Fatalf("to repeat this: go test ./verify/moments -run '%s$' -case '%s'; the moments: %s", t.Name(), name, strings.Join(quiet, ", "))
		}
	}
	t.Logf("%d cases at %d moments", len(cases), len(quiet))
}

// run runs one life, and returns its moments.
func (m machine) run(t *testing.T, name string, due map[int]string) []string {
	w := &world{T: t, due: due, events: m.events, current: name}
	synctest.Test(t, func(t *testing.T) {
		w.T = t
		w.store = &memstore.Store{}
		w.link, w.clock, w.remains = &memstore.Link{Store: w.store}, &fleet.Clock{}, fleet.NewRemains()
		w.ctx, w.end = context.WithCancel(w.remains.Ctx)
		before := time.Now()
		m.live(w)
		w.end()
		w.link.Mend()
		if m.after != nil {
			m.after(w)
		}
		w.remains.Ctx.End()
		w.others.Wait()
		time.Sleep(time.Hour) // what hangs ends
		if kept := w.remains.Kept(t); len(kept) > 0 {
			w.errorf("something is left: %v", kept)
		}
		if took := time.Since(before); took > 2*time.Hour {
			w.errorf("it took %v", took)
		}
	})
	return w.steps
}

func (w *world) errorf(format string, args ...any) {
	w.Helper()
	w.Errorf(w.current+": "+format, args...)
}

// options returns the options of the machine's locks.
func (w *world) options(more ...spindle.Option) []spindle.Option {
	seam := func(c *options.Config) { c.Store, c.Clock, c.Process = gate{w.link, w}, w.clock, "machine" }
	return w.remains.Options(append([]spindle.Option{seam, spindle.WithID("machine"), spindle.WithLease(lease),
		spindle.WithLogger(slog.New(slog.DiscardHandler))}, more...)...)
}

// beside returns the options of another, healthy process.
func (w *world) beside(id string, more ...spindle.Option) []spindle.Option {
	seam := func(c *options.Config) { c.Store, c.Clock, c.Process = w.store, &fleet.Clock{}, id }
	return append([]spindle.Option{seam, spindle.WithID(id), spindle.WithLease(lease), spindle.WithLogger(slog.New(slog.DiscardHandler))}, more...)
}

// gate is the machine's store. It delivers events between its requests and their replies.
type gate struct {
	table.Store
	w *world
}

func (g gate) pass(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
	switch g.w.moment(step + " is sent") {
	case "the request is lost":
		<-ctx.Done()
		return memstore.ErrCut
	case "the request is refused":
		return errUnavailable
	}
	err := call(ctx, g.Store)
	switch g.w.moment(step + " is answered") {
	case "the request is lost", "the reply is lost", "the request is refused":
		<-ctx.Done()
		return memstore.ErrCut
	case "the reply is late":
		select {
		case <-time.After(lease / 2):
		case <-ctx.Done():
			return memstore.ErrCut
		}
	}
	return err
}

func (g gate) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	return table.Via(g.pass).Read(ctx, step, bound, keys)
}

func (g gate) Commit(ctx context.Context, step string, writes []table.Write) error {
	return table.Via(g.pass).Commit(ctx, step, writes)
}

func (g gate) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return table.Via(g.pass).Transact(ctx, step, fn)
}

// moment delivers the event that is due, and waits until it has had its effect. It returns a fault of the request.
func (w *world) moment(what string) (fault string) {
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

// until lets time pass until cond holds, at most for the limit.
func (w *world) until(what string, limit time.Duration, cond func() bool) {
	w.Helper()
	for start := time.Now(); !cond(); time.Sleep(lease / 200) {
		if time.Since(start) > limit {
			w.errorf("%s: not within %v", what, limit)
			return
		}
	}
}

// apart fails the test if two of the values hold the lock at the same time, from now until the returned function is
// called.
func (w *world) apart(held ...func() bool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w.others.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(lease / 500) {
			n := 0
			for _, h := range held {
				if h() {
					n++
				}
			}
			w.mu.Lock()
			notices := time.Since(w.broken) < lease
			w.mu.Unlock()
			if n > 1 && !notices {
				w.errorf("%d hold it", n)
				return
			}
		}
	})
	return cancel
}

// cutOff cuts the machine off from the table for a while.
func cutOff(d time.Duration) func(*world) {
	return func(w *world) {
		w.link.Cut()
		time.Sleep(d)
		w.link.Mend()
	}
}

// common are the events that can happen to every machine.
func common(more map[string]func(*world)) map[string]func(*world) {
	all := map[string]func(*world){
		"ctx ends":                     func(w *world) { w.end() },
		"it is cut off for a while":    cutOff(lease / 2),
		"it is cut off for two leases": cutOff(2 * lease),
		"it was suspended":             func(w *world) { w.clock.Wall.Add(int64(lease)) },
		"its wall clock is set back":   func(w *world) { w.clock.Wall.Add(-int64(lease)) },
	}
	maps.Copy(all, more)
	return all
}

// operator releases a lock whoever holds it.
func operator(name string) func(*world) {
	return func(w *world) {
		w.mu.Lock()
		w.broken = time.Now()
		w.mu.Unlock()
		tab := table.Table{Store: w.store}
		if l, err := tab.ListOne(context.Background(), name); err == nil && l.Token != 0 {
			_ = tab.Break(context.Background(), l.Token, name)
		}
	}
}

// requested asks whoever holds a lock for a handover.
func requested(name string) func(*world) {
	return func(w *world) {
		tab := table.Table{Store: w.store}
		if l, err := tab.ListOne(context.Background(), name); err == nil && l.Token != 0 {
			_ = tab.Ask(context.Background(), table.ByOperator, name, l.Token)
		}
	}
}
