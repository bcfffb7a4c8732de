package serve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/operator"
)

// lately is how long pages still show a lock after it was released. A lock that should always be held may have lost its
// holder, and users need to see that. Released mutexes and semaphores are hidden immediately, because there may be many
// of them and their release is normal.
const lately = 5 * time.Minute

// inUse reports whether a lock is taken, has waiters, has a record of completed work, or belongs to a group.
func (k *lock) inUse() bool {
	return k.isTaken() || len(k.Waiters) > 0 || k.Done.Key != "" || k.Undone != nil || k.IsPart() && k.State() != operator.Free
}

// isTaken reports whether a lock is neither released nor free.
func (k *lock) isTaken() bool { return k.State() != operator.Released && k.State() != operator.Free }

// hides reports whether pages leave out a lock because it was released. Expected locks are never left out. With
// --released, pages show all locks.
func (h *history) hides(k *lock) bool {
	if !h.skips || k.inUse() || k.expected {
		return false
	}
	n := len(k.terms)
	return n == 0 || k.kind.IsShort() || h.at.Sub(k.terms[n-1].to) >= lately
}

// show decides which locks pages show. It removes hidden locks from touched, and adds the locks that have just become
// visible. To forgotten, it adds the ids of the locks that have just been hidden.
func (h *history) show(touched []touch, forgotten []int) ([]touch, []int) {
	touched = slices.DeleteFunc(touched, func(t touch) bool { return !t.shown })
	for _, k := range h.locks {
		was := k.shown
		k.shown = !h.hides(k)
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

// names returns the locks that the next read must include by name. These are the expected locks and, if reads skip
// released locks, all locks that are taken now. If one of these is released, the next read would otherwise not show how
// its term ended.
func (h *history) names() []string {
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
