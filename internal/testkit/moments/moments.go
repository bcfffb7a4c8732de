// Package moments runs a machine many times in virtual time, and delivers events at different moments of its life. A
// machine is the code under test, such as an elector. Each of its requests has two moments: just before the request is
// sent, and after it has taken effect but before the reply arrives. A test sees the machine only through its table,
// clock and API, so it does not depend on the machine's internals.
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
	"sync/atomic"
	"testing"
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

var flagCase = flag.String("case", "", "run only this case of a test such as TestMutexAtEachMoment; a failed test prints its case")

// Lease is the lease of the machines and of their rivals.
const Lease = 10 * time.Second

// Machine is the code under test.
type Machine struct {
	Live   func(*World)            // runs one life through the public API, from the first request to the last goroutine
	Events map[string]func(*World) // what can happen to it, besides the faults of its requests
	After  func(*World)            // what must hold once it has ended and the faults are over
}

// World holds the state of one life of a machine: its table, its clock, and the other processes.
type World struct {
	*testing.T
	Store   *memstore.Store
	Link    *memstore.Link // the machine's connection to the table
	Clock   *fleet.Clock   // the machine's clock
	Remains *fleet.Remains
	Ctx     context.Context // the machine's context, which the event "ctx ends" cancels
	End     context.CancelFunc
	Others  sync.WaitGroup // the processes beside it
	Values  any            // what the machine's own functions keep
	Terms   atomic.Int64   // how many terms the machine's events reported; 0 if it has no events

	script
}

// script is what happens to a machine, and when.
type script struct {
	name   string
	events map[string]func(*World)
	due    map[string]string // the events to deliver, by moment: the moment's number and kind, as in "2 look is sent"

	mu       sync.Mutex
	count    map[string]int       // how many moments of each kind there were
	over     int                  // how many moments there were when the events ended; 0: events are still delivered
	steps    []string             // the kinds of the moments so far
	broken   time.Time            // when an operator released a living holder's lock; the holder notices at its next answered heartbeat
	ill      map[string]illness   // the faults that last, by step
	answered map[string]time.Time // when the last answered request of each step was sent
}

// ErrUnavailable is the answer to a request that is refused.
var ErrUnavailable = status.Error(codes.Unavailable, "the request is refused")

// Every fault ends by itself, so that a second fault can hit what the first one left behind. A fault affects one
// request, either before or after the request takes effect. If the fault's name contains "such requests" or "the last",
// it also affects all requests of the same step in the next two leases.
var (
	faultsBefore = []string{"the request is lost", "the request is refused", "such requests are lost", "such requests are refused"}
	faultsAfter  = []string{"the reply is lost", "the reply is late", "the reply is late and the last"}
)

// illness is a fault of all requests of a step.
type illness struct {
	refused bool // otherwise they are lost
	until   time.Time
}

// AtEachMoment runs the machine once without events, to find its moments. Then it runs the machine once for each drawn
// case. A case is one event at one moment, or a pair of events. In a series of moments (see inARow), cases with one
// event are made for only about one moment in twenty.
func AtEachMoment(t *testing.T, m Machine) {
	quiet := m.run(t, "quiet", nil)
	require.NotEmpty(t, quiet)
	cases := map[string]map[string]string{}
	kinds := map[string][]string{} // the cases of each kind: one event at moments that are alike, or one pair
	add := func(kind string, due map[string]string) {
		var name []string
		for _, at := range slices.Sorted(maps.Keys(due)) {
			name = append(name, at+": "+due[at])
		}
		one := strings.Join(name, ", ")
		cases[one], kinds[kind] = due, append(kinds[kind], one)
	}
	of, at := map[string]int{}, make([]string, len(quiet))
	for i, kind := range quiet {
		at[i] = fmt.Sprint(of[kind], " ", kind)
		of[kind]++
		if inARow(quiet, i) && rand.N(20) > 0 {
			continue
		}
		for _, e := range m.at(kind) {
			add(kind+", "+e, map[string]string{at[i]: e})
		}
	}
	for n := range len(cases) / 3 {
		first := rand.N(len(quiet))
		second := min(first+1+rand.N(6), len(quiet)-1)
		add(fmt.Sprint("pair ", n), map[string]string{at[first]: one(m.at(quiet[first])), at[second]: one(m.at(quiet[second]))})
	}
	if *flagCase != "" {
		due := map[string]string{}
		for _, e := range strings.Split(*flagCase, ", ") {
			at, what, _ := strings.Cut(e, ": ")
			due[at] = what
		}
		cases, kinds = map[string]map[string]string{*flagCase: due}, map[string][]string{"": {*flagCase}}
	}
	for _, name := range drawn(kinds) {
		m.run(t, name, cases[name])
		if t.Failed() {
			t.Fatalf("to repeat this case, run the test with -run '%s$' -case '%s' (a run without events has these moments: %s)", t.Name(), name, strings.Join(quiet, ", "))
		}
	}
	t.Logf("%d cases of %d kinds at %d moments", len(cases), len(kinds), len(quiet))
}

// drawn returns all cases or, without SPINDLE_ALL_CASES, one case from each of about half of the kinds.
func drawn(kinds map[string][]string) (names []string) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		switch of := kinds[kind]; {
		case fleet.AllCases():
			names = append(names, of...)
		case len(kinds) == 1 || rand.N(2) == 0:
			names = append(names, one(of))
		}
	}
	return names
}

// inARow reports whether a moment belongs to a series of repeated requests, such as polls: the moments four or six
// places before and after it are of the same kind.
func inARow(all []string, i int) bool {
	for _, far := range []int{4, 6} {
		if i >= far && i+far < len(all) && all[i] == all[i-far] && all[i] == all[i+far] {
			return true
		}
	}
	return false
}

func one(of []string) string { return of[rand.N(len(of))] }

// at returns what can happen at a moment.
func (m Machine) at(moment string) []string {
	all := slices.Sorted(maps.Keys(m.Events))
	if strings.HasSuffix(moment, sent) {
		return append(all, faultsBefore...)
	}
	return append(all, faultsAfter...)
}

// run runs one life, and returns its moments.
func (m Machine) run(t *testing.T, name string, due map[string]string) []string {
	w := &World{script: script{name: name, events: m.Events, due: due, count: map[string]int{}, ill: map[string]illness{}, answered: map[string]time.Time{}}}
	fleet.Within(24*time.Hour, t, func(t *testing.T) {
		w.T = t
		w.Store = &memstore.Store{}
		w.Link, w.Clock, w.Remains = &memstore.Link{Store: w.Store}, &fleet.Clock{}, fleet.NewRemains()
		w.Ctx, w.End = context.WithCancel(w.Remains.Ctx)
		before := time.Now()
		m.Live(w)
		w.End()
		w.mend()
		w.Until("its tickets are deleted", 4*Lease, func() bool { return len(tickets(w, "machine")) == 0 })
		w.end()
		if m.After != nil {
			m.After(w)
		}
		w.Remains.Ctx.End()
		w.Others.Wait()
		time.Sleep(time.Hour) // requests that hang end
		if kept := w.Remains.Kept(t); len(kept) > 0 {
			w.Errorf("something is left: %v", kept)
		}
		if left := tickets(w, ""); len(left) > 0 {
			w.Errorf("tickets are left: %v", left)
		}
		w.tally()
		if took := time.Since(before); took > 2*time.Hour {
			w.Errorf("it took %v", took)
		}
	})
	return w.steps[:w.over]
}

// tally checks the machine's metrics: each term that began has ended once, and each heartbeat that was sent was
// answered or has failed.
func (w *World) tally() {
	sum := map[string]float64{}
	for series, n := range w.Remains.Metrics(w.T) {
		name, _, _ := strings.Cut(series, "{")
		sum[name] += n
	}
	if len(sum) == 0 {
		return // the machine does not report to Remains
	}
	began, ended := sum["wait.duration_count"], sum["terms"]
	if told := float64(w.Terms.Load()); began != ended || ended != sum["term.duration_count"] || told > 0 && told != began {
		w.Errorf("%v terms began, %v ended, %v durations were recorded, and the events reported %v", began, ended, sum["term.duration_count"], told)
	}
	beats := 0
	for _, step := range w.steps {
		if step == "heartbeat"+sent {
			beats++
		}
	}
	if n := sum["heartbeat.duration_count"]; int(n) != beats {
		w.Errorf("%v heartbeats were counted, but %d were sent", n, beats)
	}
}

// tickets returns the tickets of one process, or of all processes.
func tickets(w *World, of string) (left []string) {
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
	w.T.Errorf(w.name+": "+format, args...)
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

const sent = " is sent"

// pass delivers events before a request is sent, and between its effect and its reply.
func (w *World) pass(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
	began := time.Now()
	switch w.moment(step + sent) {
	case "the request is lost":
		return w.Link.Wait(ctx)
	case "the request is refused":
		return ErrUnavailable
	case "such requests are lost":
		w.sicken(step, illness{})
	case "such requests are refused":
		w.sicken(step, illness{refused: true})
	}
	if how, ill := w.illness(step); ill && how.refused {
		return ErrUnavailable
	} else if ill {
		return w.Link.Wait(ctx)
	}
	err := call(ctx, w.Link)
	switch fault := w.moment(step + " is answered"); fault {
	case "the reply is lost":
		return w.Link.Wait(ctx)
	case "the reply is late", "the reply is late and the last":
		late := Lease / 2 // longer than a request may take
		if fault != "the reply is late" {
			late = Lease / 4
		}
		select {
		case <-time.After(late):
		case <-ctx.Done():
			return w.Link.Wait(ctx)
		}
		if fault != "the reply is late" {
			w.sicken(step, illness{})
		}
	}
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if began.After(w.answered[step]) { // a request that was sent later may have been answered earlier
			w.answered[step] = began
		}
	}
	return err
}

func (w *World) sicken(step string, how illness) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how.until = time.Now().Add(2 * Lease)
	w.ill[step] = how
}

func (w *World) illness(step string) (how illness, ill bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how = w.ill[step]
	return how, time.Now().Before(how.until)
}

// mend ends the faults.
func (w *World) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.ill)
	w.Link.Mend()
}

// end ends the faults for good. From now on, no events are delivered.
func (w *World) end() {
	w.mend()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = len(w.steps)
}

// moment delivers the event that is due at this moment, and waits until the other goroutines have reacted. If the event
// is a fault of the request, moment returns the fault instead, and its caller applies it.
func (w *World) moment(what string) (fault string) {
	w.mu.Lock()
	event := ""
	if w.over == 0 {
		event = w.due[fmt.Sprint(w.count[what], " ", what)]
	}
	w.count[what]++
	w.steps = append(w.steps, what)
	w.mu.Unlock()
	do := w.events[event]
	if do == nil {
		return event
	}
	go do(w)
	time.Sleep(time.Microsecond) // returns only once all other goroutines are blocked
	return ""
}

// Until waits until cond returns true. The test fails if that takes longer than limit.
func (w *World) Until(what string, limit time.Duration, cond func() bool) {
	w.Helper()
	for start := time.Now(); !cond(); time.Sleep(Lease / 200) {
		if time.Since(start) > limit {
			w.Errorf("%s: not within %v", what, limit)
			return
		}
	}
}

// Apart fails the test if two of the functions return true at the same time. Each function reports whether one
// candidate holds the lock. Apart checks this until the returned function is called. It makes an exception for one
// lease after each call of Break, because the old holder may not know yet that it has lost the lock.
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

// Renewed fails the test if the machine acts although its last answered request of one of the given kinds was sent more
// than a lease ago. A kind is a list of steps. Renewed checks this until the returned function is called.
func (w *World) Renewed(acts func() bool, kinds ...[]string) (stop func()) {
	return w.Every(Lease/100, func() error {
		if !acts() {
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, steps := range kinds {
			var last time.Time
			for _, step := range steps {
				if at := w.answered[step]; at.After(last) {
					last = at
				}
			}
			if age := time.Since(last); age > Lease {
				return fmt.Errorf("it is still acting %v after it sent its last answered request of %v", age, steps)
			}
		}
		return nil
	})
}

// Always calls check 500 times per lease until the returned function is called. The test fails if check returns an
// error.
func (w *World) Always(check func() error) (stop func()) { return w.Every(Lease/500, check) }

// Every is like Always, but calls check at intervals of d.
func (w *World) Every(d time.Duration, check func() error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w.Others.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(d) {
			if err := check(); err != nil {
				w.Errorf("%v", err)
				return
			}
		}
	})
	return cancel
}

// Prompt repeatedly calls the blocking function wait, until the returned function is called. The test fails if is()
// stays true for more than lease/10 and wait does not return, or if wait returns nil twice in a row while is() is
// false.
func (w *World) Prompt(what string, is func() bool, wait func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var returns atomic.Int64
	w.Others.Go(func() {
		for early := 0; ctx.Err() == nil; time.Sleep(Lease / 50) {
			if early++; wait(ctx) != nil || is() {
				early = 0
			} else if early > 1 {
				w.Errorf("%s returns too early", what)
				return
			}
			returns.Add(1)
		}
	})
	before, row := int64(0), 0
	stopCheck := w.Every(Lease/50, func() error {
		if now := returns.Load(); !is() || now != before {
			before, row = now, 0
		} else if row++; row > 5 {
			return fmt.Errorf("%s does not return", what)
		}
		return nil
	})
	return func() { cancel(); stopCheck() }
}

// Faultless reports whether every request of the machine is answered in time in this life.
func (w *World) Faultless() bool {
	for _, event := range w.due {
		if w.events[event] == nil || strings.HasPrefix(event, "it is cut off") || strings.HasPrefix(event, "it was suspended") {
			return false
		}
	}
	return true
}

// Only reports whether only one event happens in this life.
func (w *World) Only() bool { return len(w.due) == 1 }

// Happens reports whether an event is one of those that happen in this life.
func (w *World) Happens(event string) bool {
	return slices.Contains(slices.Collect(maps.Values(w.due)), event)
}

// cutOff returns an event that cuts the machine off from the table for the given time.
func cutOff(d time.Duration) func(*World) {
	return func(w *World) {
		w.Link.Cut()
		time.Sleep(d)
		w.Link.Mend()
	}
}

// Common returns the events that can happen to every machine, and the given ones.
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

// Operator returns an event that takes a lock from its holder, as spindle release does.
func Operator(name string) func(*World) {
	return func(w *World) { w.Break(name, func(table.Observation) bool { return true }) }
}

// Break takes a lock from its holder if must returns true for what the table says about the lock.
func (w *World) Break(name string, must func(table.Observation) bool) {
	tab := table.Table{Store: w.Store}
	if seen, err := tab.Observe(context.Background(), name); err == nil && seen[0].Token != 0 && must(seen[0]) {
		w.mu.Lock()
		w.broken = time.Now()
		w.mu.Unlock()
		_ = tab.Break(context.Background(), seen[0].Token, name)
	}
}

// Requested returns an event that asks the holder of a lock for a handover.
func Requested(name string) func(*World) {
	return func(w *World) {
		tab := table.Table{Store: w.Store}
		if seen, err := tab.Observe(context.Background(), name); err == nil && seen[0].Token != 0 {
			_ = tab.Ask(context.Background(), table.ByOperator, name, seen[0].Token)
		}
	}
}
