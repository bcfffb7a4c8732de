package serve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// lately is how long pages still show a lock after a look has seen its release. A lock that should be held may have
// lost its holder, and the page must show that. Released mutexes and semaphores are hidden immediately, because there
// may be many of them and their release is normal.
const lately = 5 * time.Minute

// inUse reports whether a lock is taken, has waiters, has a record of work that was done under it, or belongs to a
// group.
func (k *lock) inUse() bool {
	return k.isTaken() || len(k.Waiters) > 0 || k.Done.Key != "" || k.Undone != nil || k.IsPart() && k.State() != table.Free
}

// isTaken reports whether a lock is neither released nor free.
func (k *lock) isTaken() bool { return k.State() != table.Released && k.State() != table.Free }

// hides reports whether pages leave a lock out because it was released. They never leave out an expected lock, and with
// --released they leave out none.
func (s *Server) hides(k *lock) bool {
	if s.Released || k.inUse() || k.expected {
		return false
	}
	n := len(k.terms)
	return n == 0 || k.kind.IsShort() || s.history.at.Sub(k.terms[n-1].to) >= lately
}

// show recomputes which locks pages show. It removes the changes of hidden locks from touched, and adds the locks that
// have just become visible. It adds the locks that have just been hidden to forgotten.
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

// names returns the locks that a look also reads by name. These are the expected locks and, if looks leave out released
// locks, the locks that were taken at the last look, because otherwise the look would not show how their terms ended.
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
