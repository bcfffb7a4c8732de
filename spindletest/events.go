package spindletest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
)

// Events records the events that a lock reports to its observer, so that a test can wait for them.
type Events struct {
	tb testing.TB

	mu    sync.Mutex
	told  []spindle.Event
	heard int           // how many of them Await has examined
	more  chan struct{} // closed at the next event; nil if no goroutine waits; created by the waiter, in its own bubble
}

// NewEvents returns an empty record.
func NewEvents(tb testing.TB) *Events { return &Events{tb: tb} }

// Option returns an option that records the events of one lock or of one group member. Unlike spindle.WithObserver, it
// does not replace an observer that an earlier option has set.
func (e *Events) Option() spindle.GroupOption {
	return options.Option(func(c *options.Config) {
		before := c.Observe
		options.Join(spindle.WithObserver(e.add))(c)
		if add := c.Observe; before != nil {
			c.Observe = func(ev elect.Event) { before(ev); add(ev) }
		}
	})
}

// Await waits for an event of the given kind and returns it. It considers only events that came after the event that it
// last returned. If no such event occurs within the given time, Await fails the test. In a testing/synctest bubble, the
// time is virtual, and advances while Await waits. Because Await may fail the test, call it only from the test's own
// goroutine.
func (e *Events) Await(within time.Duration, kind spindle.EventKind) spindle.Event {
	e.tb.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		ev, found, more := e.next(kind)
		if found {
			return ev
		}
		select {
		case <-more:
		case <-limit.C:
			e.tb.Fatalf("spindletest: no new event %q within %v; all events so far: %s", kind, within, e.kinds())
			return spindle.Event{}
		}
	}
}

// kinds returns the kinds of all events, in order.
func (e *Events) kinds() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.told) == 0 {
		return "none (if the lock has a WithObserver option, pass the option of Events after it)"
	}
	kinds := make([]string, len(e.told))
	for i, ev := range e.told {
		kinds[i] = ev.Kind.String()
	}
	return strings.Join(kinds, ", ")
}

func (e *Events) add(ev spindle.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, ev)
	if e.more != nil {
		close(e.more)
		e.more = nil
	}
}

// next advances to the next event of the given kind, or to the end of the record.
func (e *Events) next(kind spindle.EventKind) (ev spindle.Event, found bool, more <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.heard < len(e.told) {
		ev = e.told[e.heard]
		if e.heard++; ev.Kind == kind {
			return ev, true, nil
		}
	}
	if e.more == nil {
		e.more = make(chan struct{})
	}
	return ev, false, e.more
}
