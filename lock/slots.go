package lock

import (
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// slots has the slots of one semaphore that goroutines of this process are about to claim or hold. One goroutine's look
// may be older than another's claim.
type slots struct {
	mu    sync.Mutex
	taken map[string]bool
}

// A pick is the slot that one goroutine has chosen.
type pick struct {
	of   *slots
	slot string // or ""
	over bool
}

// from chooses one of the free slots that nobody else in this process has, in place of its earlier choice: the one that
// which returns. It reports false if there is none, or if it has to wait for the returned time.
func (p *pick) from(free []elect.LockView, which func([]elect.LockView) (int, time.Duration, bool)) (elect.LockView, time.Duration, bool) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	delete(p.of.taken, p.slot)
	p.slot = ""
	free = slices.DeleteFunc(slices.Clone(free), func(s elect.LockView) bool { return p.of.taken[s.Name] })
	if p.over || len(free) == 0 {
		return elect.LockView{}, 0, false
	}
	i, wait, ok := which(free)
	if !ok {
		return elect.LockView{}, wait, false
	}
	p.slot = free[i].Name
	p.of.taken[p.slot] = true
	return free[i], 0, true
}

// drop leaves the slot to the others of this process. A look that ctx left behind chooses none any more.
func (p *pick) drop() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	delete(p.of.taken, p.slot)
	p.slot, p.over = "", true
}
