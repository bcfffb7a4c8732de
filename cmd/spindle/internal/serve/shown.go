package serve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// lately is how long pages still show a lock whose release a look saw: nobody may hold a lock that should be held, and the
// page must say so. Mutexes and semaphores are left out at once: they would be many, and say nothing.
const lately = 5 * time.Minute

// inUse reports whether there is more to a lock than that it was released, or has no row.
func (k *lock) inUse() bool {
	return k.isTaken() || len(k.Waiters) > 0 || k.Done.Key != "" || k.Undone != nil || k.IsPart() && k.State() != table.Free
}

// isTaken reports whether a lock has rows that say more than that it was released.
func (k *lock) isTaken() bool { return k.State() != table.Released && k.State() != table.Free }

// hides reports whether pages leave a lock out: one that was released, unless it is expected or --released was given.
func (s *Server) hides(k *lock) bool {
	if s.Released || k.inUse() || k.expected {
		return false
	}
	n := len(k.terms)
	return n == 0 || k.kind.IsShort() || s.history.at.Sub(k.terms[n-1].to) >= lately
}

// show drops changes of locks that pages don't show. It adds to touched the locks that pages show from now on, and to
// forgotten those that they no longer show.
func (h *history) show(touched []touch, forgotten []int) ([]touch, []int) {
	touched = slices.DeleteFunc(touched, func(t touch) bool { return !t.shown })
	for _, k := range h.locks {
		was := k.shown
		k.shown = h.hides == nil || !h.hides(k)
		switch {
		case k.shown && !was:
			touched = append(touched, touch{k, true, len(k.terms)})
		case was && !k.shown:
			forgotten = append(forgotten, k.id)
		}
	}
	touched = slices.DeleteFunc(touched, func(t touch) bool { return !t.shown })
	slices.SortFunc(touched, func(a, b touch) int { return cmp.Compare(a.id, b.id) })
	return touched, forgotten
}

// names returns the locks that a look also reads by name: those that should be held, and those that were taken at the last
// look, to see how their terms ended.
func (s *Server) names() []string {
	h := &s.history
	h.named = map[string]bool{}
	for name := range h.expected {
		h.named[name] = true
	}
	for name, k := range h.locks {
		if h.skips && k.isTaken() {
			h.named[name] = true
		}
	}
	return slices.Collect(maps.Keys(h.named))
}
