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

// Events are what a lock has told its observer, for a test to wait for.
type Events struct {
	tb testing.TB

	mu    sync.Mutex
	told  []spindle.Event
	heard int           // of those that were told: Await goes on after them
	more  chan struct{} // closed when another is told; nil: nobody waits. Made by who waits, in the bubble of that.
}

// NewEvents returns a record without events.
func NewEvents(tb testing.TB) *Events { return &Events{tb: tb} }

// Option records the events of one lock, or of one member of a group. It is spindle.WithObserver, but keeps one that
// was given before it.
func (e *Events) Option() spindle.Option {
	return func(c *options.Config) {
		before := c.Observe
		spindle.WithObserver(e.add)(c)
		if add := c.Observe; before != nil {
			c.Observe = func(ev elect.Event) { before(ev); add(ev) }
		}
	}
}

// Await blocks until there is an event of that kind after the one that Await has returned last, and returns it. It
// fails the test if there is none within that time: in a bubble of testing/synctest, of its time, which
// passes while this waits. As what fails a test, it is for the test's own goroutine.
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

// kinds are those of all events, in their order.
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

// next goes on to the next of that kind, or to the end.
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
