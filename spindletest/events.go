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

// Events records what a lock has reported to its observer, for a test to wait for.
type Events struct {
	tb testing.TB

	mu    sync.Mutex
	told  []spindle.Event
	heard int           // how many Await has passed
	more  chan struct{} // closed at the next event; nil: nobody waits. The waiter makes it, in its own bubble.
}

// NewEvents returns a record without events.
func NewEvents(tb testing.TB) *Events { return &Events{tb: tb} }

// Option records the events of one lock, or of one member of a group. It is spindle.WithObserver, but keeps an observer
// given before it.
func (e *Events) Option() spindle.Option {
	return func(c *options.Config) {
		before := c.Observe
		spindle.WithObserver(e.add)(c)
		if add := c.Observe; before != nil {
			c.Observe = func(ev elect.Event) { before(ev); add(ev) }
		}
	}
}

// Await blocks until there is an event of that kind after the last one that Await returned, and returns it. It fails
// the test if there is none within that time. In a bubble of testing/synctest the time is the bubble's, and passes
// while Await waits. Call Await only from the test's own goroutine, because it may fail the test.
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
			e.tb.Fatalf("spindletest: no event %q within %v; there were: %s", kind, within, e.kinds())
			return spindle.Event{}
		}
	}
}

// kinds returns the kinds of all events, in their order.
func (e *Events) kinds() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.told) == 0 {
		return "none: an observer that is given after Option replaces it"
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

// next moves to the next event of that kind, or to the end.
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
