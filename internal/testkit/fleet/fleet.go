// Package fleet runs locks in virtual time on a table in memory, so that tests can check exact times. Each machine has
// a clock and a connection to the table, and tests can inject faults into both.
package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// Lease is a machine's lease unless its options set a different one.
const Lease = 10 * time.Second

// Name is the name of the lock that machines compete for, except those that Named returns.
const Name = "mylock"

// Key returns the key of the lock's lease row under a token.
func Key(t spindle.Token) string { return table.LeaseKey(Name, table.Token(t)) }

// Fleet is a table in memory and the machines on it.
type Fleet struct {
	T     *testing.T
	Store *memstore.Store
}

// InVirtualTime runs f in virtual time, with an empty table.
func InVirtualTime(t *testing.T, f func(*Fleet)) {
	t.Helper()
	Bubble(t, func(t *testing.T) { f(&Fleet{T: t, Store: &memstore.Store{}}) })
}

// BesideOthers is like InVirtualTime, but for a test that runs in parallel with others. It changes no settings of the
// process.
func BesideOthers(t *testing.T, f func(*Fleet)) {
	Within(longest, t, func(t *testing.T) { f(&Fleet{T: t, Store: &memstore.Store{}}) })
}

// inBubble is locked while a call to Bubble is running.
var inBubble sync.Mutex

// Bubble runs f in a bubble of package synctest. While f runs, the whole process uses one core and collects garbage
// less often. In a large fleet, goroutines wake each other all the time. With more cores, each wake-up also wakes a
// thread that finds nothing to do, which takes a third of the processor time. Tests that run in parallel must not call
// Bubble, because each call would undo another call's settings.
func Bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if !inBubble.TryLock() {
		t.Fatal("two tests called fleet.Bubble at the same time: use fleet.BesideOthers or synctest.Test in parallel tests")
	}
	defer inBubble.Unlock()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	Within(longest, t, f)
}

// longest is more virtual time than a test needs, unless it calls Within itself.
const longest = 200 * time.Hour

// Within runs f in a bubble of package synctest, for at most the given virtual time. Without a limit, a test that waits
// for something that never happens would run forever, as long as other timers keep firing.
func Within(limit time.Duration, t *testing.T, f func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		over := time.AfterFunc(limit, func() {
			debug.SetTraceback("all")
			panic(fmt.Sprintf("--- FAIL: %s: the test has not ended within %v of virtual time", t.Name(), limit)) // t.Fatal could not end the test
		})
		defer over.Stop()
		f(t)
	})
}

// Machine is a process with one candidate.
type Machine struct {
	*spindle.Lock
	Link  *memstore.Link
	Clock *Clock
	Stop  context.CancelFunc
	Done  chan error
	Seen  *Events
}

// Machine returns a machine whose candidate is not running yet.
func (f *Fleet) Machine(id string, opts ...spindle.Option) *Machine {
	return f.Named(Name, id, opts...)
}

// Named is like Machine, but for the lock with the given name.
func (f *Fleet) Named(name, id string, opts ...spindle.Option) *Machine {
	m := &Machine{Link: &memstore.Link{Store: f.Store}, Clock: &Clock{}, Done: make(chan error, 1), Seen: &Events{}}
	seam := options.Option(func(c *options.Config) { c.Store, c.Clock = m.Link, m.Clock })
	m.Lock = spindle.New(nil, "locktable", name, append([]spindle.Option{seam, spindle.WithID(id),
		spindle.WithLogger(slog.New(slog.DiscardHandler)), spindle.WithObserver(m.Seen.add)}, opts...)...)
	return m
}

// Start returns a machine that is running.
func (f *Fleet) Start(id string, opts ...spindle.Option) *Machine {
	f.T.Helper()
	m := f.Machine(id, opts...)
	f.Run(m)
	return m
}

// Run runs a machine. It can also restart a machine that has ended.
func (f *Fleet) Run(m *Machine) {
	f.T.Helper()
	ctx, stop := context.WithCancel(context.Background())
	m.Stop = stop
	require.NoError(f.T, m.Lock.Run(ctx, m.Done))
	f.T.Cleanup(stop)
	synctest.Wait()
}

// End stops the machines and waits until they have ended, because no goroutine may be left when virtual time ends.
func (f *Fleet) End(ms ...*Machine) {
	for _, m := range ms {
		m.Link.Mend()
		m.Stop()
		<-m.Done
	}
	synctest.Wait()
}

// Until lets time pass until cond returns true, and returns how much time has passed. If that takes longer than limit,
// Until fails the test.
func (f *Fleet) Until(limit time.Duration, cond func() bool) time.Duration {
	f.T.Helper()
	start := time.Now()
	for !cond() {
		require.Less(f.T, time.Since(start), limit, "waited in vain")
		time.Sleep(time.Millisecond)
		synctest.Wait()
	}
	return time.Since(start)
}

// Operator commits writes as if an operator changed rows by hand.
func (f *Fleet) Operator(writes ...table.Write) {
	f.T.Helper()
	require.NoError(f.T, f.Store.Commit(context.Background(), "operator", writes))
}

// Has reports whether the machine holds the lock.
func (m *Machine) Has() bool {
	ok, _ := m.HasLock()
	return ok
}

// Token returns the token under which the machine holds the lock, or 0.
func (m *Machine) Token() spindle.Token {
	_, t := m.HasLock()
	return t
}

// Clock is a machine's clock. Tests can shift its wall clock and its monotonic clock.
type Clock struct {
	elect.SystemClock
	Wall, Mono atomic.Int64 // offsets from the system clock, in nanoseconds
}

// Now implements elect.Clock.
func (c *Clock) Now() elect.Instant {
	i := c.SystemClock.Now()
	return elect.Instant{Wall: i.Wall + c.Wall.Load(), Mono: i.Mono + c.Mono.Load()}
}

// Events contains the events that a machine's observer has received.
type Events struct {
	mu   sync.Mutex
	list []spindle.Event
}

func (e *Events) add(ev spindle.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

// All waits until the observer has received all events so far, and returns them in order.
func (e *Events) All() []spindle.Event {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]spindle.Event(nil), e.list...)
}

// Last returns the last event.
func (e *Events) Last() spindle.Event {
	all := e.All()
	return all[len(all)-1]
}

// Kinds returns the kinds of the events, in order and separated by commas.
func (e *Events) Kinds() string {
	var kinds []string
	for _, ev := range e.All() {
		kinds = append(kinds, ev.Kind.String())
	}
	return strings.Join(kinds, ", ")
}

// Log is a log that a test can read while a machine writes to it.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the text that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Reset forgets the text.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// Refusing returns a function for Link.Refuse that answers the given step with the given error.
func Refusing(step string, err error) func(string) error {
	return func(s string) error {
		if s == step {
			return err
		}
		return nil
	}
}
