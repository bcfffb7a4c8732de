package fleet

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/metric"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// Context is a context that counts the callbacks registered on it, so that tests can detect callbacks that the library
// leaves behind. Deriving a cancelable context from a Context registers a callback, and so does context.AfterFunc. A
// callback counts until it is stopped or called.
type Context struct {
	context.Context
	End context.CancelFunc

	callbacks atomic.Int64
}

// NewContext returns a Context that ends when End is called.
func NewContext() *Context {
	inner, end := context.WithCancel(context.Background())
	return &Context{Context: inner, End: end}
}

// Value implements context.Context. It hides the inner context. Otherwise, package context would register callbacks on
// the inner context directly, without calling AfterFunc.
func (c *Context) Value(any) any { return nil }

// AfterFunc registers a callback. Package context calls AfterFunc when it needs a callback on a Context.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	c.callbacks.Add(1)
	over := sync.OnceFunc(func() { c.callbacks.Add(-1) })
	stopped := context.AfterFunc(c.Context, func() { over(); f() })
	return func() bool { over(); return stopped() }
}

// Callbacks returns the number of registered callbacks.
func (c *Context) Callbacks() int { return int(c.callbacks.Load()) }

// Registrations is a metric.MeterProvider that counts the callbacks registered with it.
type Registrations struct {
	metric.MeterProvider
	callbacks atomic.Int64
}

// Meter implements metric.MeterProvider.
func (r *Registrations) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return registering{r.MeterProvider.Meter(name, opts...), r}
}

// Callbacks returns the number of registered callbacks.
func (r *Registrations) Callbacks() int { return int(r.callbacks.Load()) }

type registering struct {
	metric.Meter
	at *Registrations
}

// RegisterCallback implements metric.Meter.
func (m registering) RegisterCallback(f metric.Callback, of ...metric.Observable) (metric.Registration, error) {
	registered, err := m.Meter.RegisterCallback(f, of...)
	if err != nil {
		return nil, err
	}
	m.at.callbacks.Add(1)
	return registration{registered, sync.OnceFunc(func() { m.at.callbacks.Add(-1) })}, nil
}

type registration struct {
	metric.Registration
	over func()
}

// Unregister implements metric.Registration.
func (r registration) Unregister() error {
	r.over()
	return r.Registration.Unregister()
}

// Remains detects resources that calls leave behind in a process.
type Remains struct {
	Ctx *Context // to be passed to the calls

	reports    *Reports
	registered *Registrations
}

// NewRemains returns the Remains of a process whose locks are made with Options.
func NewRemains() *Remains {
	r := NewReports()
	return &Remains{Ctx: NewContext(), reports: r, registered: &Registrations{MeterProvider: r.Meters}}
}

// Options returns an option that makes a lock register its callbacks and report its metrics where Remains can see them.
func (r *Remains) Options() spindle.CommonOption {
	return spindle.Options(r.reports.Options(), spindle.WithMeterProvider(r.registered))
}

// Metrics returns what the locks have reported, as Reports.Metrics does.
func (r *Remains) Metrics(t testing.TB) map[string]float64 { return r.reports.Metrics(t) }

// Kept counts the resources that have not been released. These are callbacks on Ctx, callbacks registered with
// OpenTelemetry, metric series of candidates and holders, and goroutines of the synctest bubble. Kept counts goroutines
// by the innermost function of this module on their stacks.
func (r *Remains) Kept(t testing.TB) map[string]int {
	t.Helper()
	kept := goroutines()
	kept["callbacks on ctx"] = r.Ctx.Callbacks()
	kept["callbacks at OpenTelemetry"] = r.registered.Callbacks()
	for series := range r.reports.Metrics(t) {
		if strings.HasPrefix(series, "held") || strings.HasPrefix(series, "token") || strings.HasPrefix(series, "lease.margin") {
			kept[series]++
		}
	}
	maps.DeleteFunc(kept, func(_ string, n int) bool { return n == 0 })
	return kept
}

var (
	bubble = regexp.MustCompile(`synctest bubble \d+`)
	place  = regexp.MustCompile(`(?m)^(github\.com/spindle-lock/spindle\S*)\(`)
)

// goroutines waits until the bubble's other goroutines are blocked, and counts them. It leaves out the goroutines of
// package testing.
func goroutines() map[string]int {
	synctest.Wait()
	own := bubble.Find(stacks(false))
	all := map[string]int{}
	for i, stack := range bytes.Split(stacks(true), []byte("\n\n")) {
		head, _, _ := bytes.Cut(stack, []byte("\n"))
		if i == 0 || !bytes.Equal(bubble.Find(head), own) || bytes.Contains(stack, []byte("testing/synctest.Test(")) {
			continue
		}
		at := place.FindSubmatch(stack)
		if at == nil {
			continue // a goroutine of package testing
		}
		all["a goroutine in "+string(at[1])]++
	}
	return all
}

func stacks(all bool) []byte {
	for size := 1 << 16; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, all); n < size {
			return buf[:n]
		}
	}
}

// Repeats makes up to n runs of one seed, until a run is the same as an earlier one. If all runs differ, it returns two
// of them. Even with one seed, some runs may differ, because two events in the same nanosecond can occur in either
// order. However, if a choice did not come from the seed, all runs would probably differ.
func Repeats(n int, run func() string) (first, second string, repeats bool) {
	var runs []string
	for range n {
		r := run()
		if slices.Contains(runs, r) {
			return "", "", true
		}
		runs = append(runs, r)
	}
	return runs[0], runs[1], false
}

// AllCases reports whether the environment variable SPINDLE_ALL_CASES is set. If it is, the tests in virtual time
// take minutes, and the tests of verify/chaos run for longer.
//
// The tests themselves must read the variable. Otherwise, go test would print cached results of a run without it.
func AllCases() bool { return os.Getenv("SPINDLE_ALL_CASES") != "" }

// Brief reports whether tests that try all combinations should try only some of them. It returns true if -short is
// given, or if SPINDLE_ALL_CASES is not set.
func Brief() bool { return testing.Short() || !AllCases() }

// Part returns all its arguments if SPINDLE_ALL_CASES is set. Otherwise, each call returns a quarter of them, chosen at
// random, but at least one.
func Part[T any](all ...T) []T {
	if AllCases() {
		return all
	}
	drawn := slices.Clone(all)
	rand.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	return drawn[:max(1, len(drawn)/4)]
}

// Some returns all its arguments, or one of them at random if Brief reports true.
func Some[T any](all ...T) []T {
	if Brief() {
		i := rand.N(len(all))
		return all[i : i+1]
	}
	return all
}

// Farewell is an outcome of a holder's last request, the release of its lock.
type Farewell struct {
	Name  string
	Begin func(l *memstore.Link, lock string)
	Left  bool // the lock is left to expire, and the holder must report that
}

// Farewells returns the possible outcomes of a release whose request has the given step.
func Farewells(step string) []Farewell {
	sick := func(how memstore.Sickness) func(*memstore.Link, string) {
		return func(l *memstore.Link, _ string) { l.Sicken(step, how, 0) }
	}
	broken := func(l *memstore.Link, lock string) {
		tab := table.Table{Store: l.Store}
		if seen, err := tab.Observe(context.Background(), lock); err == nil {
			_ = tab.Break(context.Background(), seen[0].Token, lock)
		}
	}
	return []Farewell{
		{"answered", func(*memstore.Link, string) {}, false},
		{"its first reply is lost", func(l *memstore.Link, _ string) { l.Lose(nil, memstore.Once(step)) }, false},
		{"its lock was taken just before", broken, false},
		{"refused", sick(memstore.Refused), true},
		{"lost", sick(memstore.Lost), true},
		{"there is no connection", func(l *memstore.Link, _ string) { l.Hold() }, true},
	}
}
